/* What Anchors.java calls: to be built without unwind information and without frame pointers. */
#include <jni.h>
#include <unistd.h>

JNIEXPORT void JNICALL Java_Anchors_outer(JNIEnv *env, jclass class) {
    jmethodID inner = (*env)->GetStaticMethodID(env, class, "inner", "()V");
    volatile char frame[200];
    frame[0] = 1;
    (*env)->CallStaticVoidMethod(env, class, inner);
    frame[1] = 2;
}

JNIEXPORT void JNICALL Java_Anchors_block(JNIEnv *env, jclass class) {
    volatile char frame[72];
    char byte;
    frame[0] = 1;
    (void)env;
    (void)class;
    while (read(0, &byte, 1) > 0) {
    }
    frame[1] = 2;
}
