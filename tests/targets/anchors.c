/* What Anchors.java calls: to be built without unwind information and without frame pointers. Frames have a size that
 * only a register knows, and calls go through a register, so that following the code does not tell it either. */
#include <jni.h>
#include <unistd.h>

static volatile long size = 208;

/* Calls `function` below a frame of `bytes`. */
__attribute__((naked, noinline)) static void call_on_frame(void (*function)(void *), void *argument, long bytes) {
    __asm__("push %rbx\n\t"
            "mov %rsp, %rbx\n\t"
            "sub %rdx, %rsp\n\t"
            "mov %rdi, %rax\n\t"
            "mov %rsi, %rdi\n\t"
            "call *%rax\n\t"
            "mov %rbx, %rsp\n\t"
            "pop %rbx\n\t"
            "ret");
}

static void call_inner(void *of) {
    JNIEnv *env = ((void **)of)[0];
    (*env)->CallStaticVoidMethod(env, ((void **)of)[1], ((void **)of)[2]);
}

static void read_all(void *frame) {
    char byte;
    while (read(0, &byte, 1) > 0) {
        *(volatile char *)frame = byte;
    }
}

JNIEXPORT void JNICALL Java_Anchors_outer(JNIEnv *env, jclass class) {
    jmethodID inner = (*env)->GetStaticMethodID(env, class, "inner", "()V");
    call_on_frame(call_inner, (void *[]){(void *)env, class, inner}, size);
}

JNIEXPORT void JNICALL Java_Anchors_block(JNIEnv *env, jclass class) {
    char frame[72];
    (void)env;
    (void)class;
    call_on_frame(read_all, frame, size);
}
