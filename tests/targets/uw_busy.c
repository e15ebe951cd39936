/* One thread that never blocks, named KIND like the argument, in a chain of calls that tells it: thread_main ->
 * outer_KIND -> middle_KIND -> busy_KIND -> ... Prints `ready` when it runs; ends when its standard input does. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define OWN __attribute__((noipa, noinline))
#define STAY __asm__ volatile("" ::: "memory")

static atomic_int announced;
OWN static void announce(void) { atomic_fetch_add(&announced, 1); }
static volatile uint64_t sink;

/* Through the vDSO. */
OWN static void busy_vdso(void) {
    struct timespec now;
    announce();
    for (;;) clock_gettime(CLOCK_MONOTONIC, &now);
}
/* Functions so small that most of their time is prologue and epilogue. */
OWN static uint64_t tiny_inner(uint64_t a) { return a * 3; }
OWN static uint64_t tiny_outer(uint64_t a) {
    volatile uint64_t room[3] = {a, a, a};
    uint64_t b = tiny_inner(room[1]);
    STAY;
    return b + room[2];
}
OWN static void busy_tiny(void) {
    announce();
    for (uint64_t i = 0;; i++) sink = tiny_outer(i);
}
/* Through the procedure linkage table of another library. */
OWN static void busy_plt(void) {
    announce();
    for (int i = 0;; i++) sink = (uint64_t)toupper(i & 0x7f);
}
OWN static uint64_t fib(uint64_t n) {
    uint64_t a, b;
    if (n < 2) return n;
    a = fib(n - 1);
    b = fib(n - 2);
    return a + b;
}
OWN static void busy_recursion(void) {
    announce();
    for (;;) sink = fib(22);
}
/* Saves and restores every register that is to be preserved. */
OWN static uint64_t many(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t e = a ^ b, f = b ^ c, g = c ^ d, h = d ^ a;
    for (int i = 0; i < 3; i++) {
        e += tiny_inner(f);
        f += tiny_inner(g);
        g += tiny_inner(h);
        h += tiny_inner(e);
    }
    return e + f + g + h + a + b;
}
OWN static void busy_many(void) {
    announce();
    for (uint64_t i = 0;; i++) sink = many(i, i + 1, i + 2, i + 3);
}
/* A realigned stack of unknown size: its CFA is an expression. */
OWN static void aligned(int size) {
    char *more = __builtin_alloca(size);
    _Alignas(64) char room[256];
    memset(room, (int)sink, sizeof room);
    __asm__ volatile("" ::"r"(room), "r"(more) : "memory");
    sink += room[13];
}
OWN static void busy_align(void) {
    announce();
    for (int i = 0;; i++) aligned(i & 63);
}
OWN static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    for (int i = 0; i < 100; i++) sink = tiny_outer(i);
}
/* Most of the time in a signal handler that interrupted anything. */
OWN static void busy_signal(void) {
    announce();
    for (uint64_t i = 0;; i++) {
        __asm__ volatile("ud2" ::: "memory");
        sink = tiny_outer(i);
    }
}
OWN static void trap(int signal, siginfo_t *info, void *context) {
    handler(signal, info, context);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* ud2 */
}
/* Calls nothing: address 0. */
OWN static void segv(int signal, siginfo_t *info, void *context) {
    ucontext_t *interrupted = context;
    handler(signal, info, context);
    /* Return to the caller, as if the function had. */
    interrupted->uc_mcontext.gregs[REG_RIP] = *(greg_t *)interrupted->uc_mcontext.gregs[REG_RSP];
    interrupted->uc_mcontext.gregs[REG_RSP] += 8;
}
static void (*volatile nothing)(void);
OWN static void busy_null(void) {
    announce();
    for (;;) {
        nothing();
        STAY;
    }
}
/* Without unwind information, and with: its frame pointer is the only way. */
__asm__(".text\n.type blind_frame, @function\nblind_frame:\n push %rbp\n mov %rsp, %rbp\n mov $1000, %eax\n"
        "1: dec %eax\n jnz 1b\n pop %rbp\n ret\n.size blind_frame, . - blind_frame\n"
        ".type blind_leaf, @function\nblind_leaf:\n mov $1000, %eax\n1: dec %eax\n jnz 1b\n ret\n"
        ".size blind_leaf, . - blind_leaf\n"
        /* Keeps no frame: only the code up to its end tells where its caller is. */
        ".type blind_hard, @function\nblind_hard:\n sub $24, %rsp\n mov $1000, %eax\n1: dec %eax\n jnz 1b\n"
        " add $24, %rsp\n ret\n.size blind_hard, . - blind_hard\n"
        /* Called through a pointer, and entered by a jump: its caller names neither. */
        ".type blind_jump, @function\nblind_jump:\n jmp blind_there\n.size blind_jump, . - blind_jump\n"
        ".type blind_there, @function\nblind_there:\n push %rbp\n push %rbx\n mov $1000, %ebp\n1: dec %ebp\n jnz 1b\n"
        " pop %rbx\n pop %rbp\n ret\n.size blind_there, . - blind_there\n");
void blind_frame(void);
void blind_leaf(void);
void blind_hard(void);
void blind_jump(void);
OWN static void busy_frame(void) {
    announce();
    for (;;) {
        blind_frame();
        STAY;
    }
}
OWN static void busy_leaf(void) {
    announce();
    for (;;) {
        blind_leaf();
        STAY;
    }
}
OWN static void busy_hard(void) {
    announce();
    for (;;) {
        blind_hard();
        STAY;
    }
}
static void (*volatile through)(void) = blind_jump;
OWN static void busy_jump(void) {
    announce();
    for (;;) {
        through();
        STAY;
    }
}

#define KINDS(X) X(vdso) X(tiny) X(plt) X(recursion) X(many) X(align) X(signal) X(null) X(frame) X(leaf) X(hard) X(jump)

#define CHAIN(kind)                                                                                                    \
    OWN static void middle_##kind(void) {                                                                              \
        for (;;) {                                                                                                     \
            busy_##kind();                                                                                             \
            STAY;                                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    OWN static void outer_##kind(void) {                                                                               \
        middle_##kind();                                                                                               \
        STAY;                                                                                                          \
    }
KINDS(CHAIN)

struct kind {
    const char *name;
    void (*run)(void);
};
#define ENTRY(kind) {#kind, outer_##kind},
static const struct kind kinds[] = {KINDS(ENTRY)};

OWN static void *thread_main(void *argument) {
    const struct kind *kind = argument;
    prctl(PR_SET_NAME, kind->name);
    kind->run();
    STAY;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
    pthread_t thread;
    sigaction(SIGILL, &action, 0);
    action.sa_sigaction = segv;
    sigaction(SIGSEGV, &action, 0);
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, argv[1])) {
            pthread_create(&thread, 0, thread_main, (void *)&kinds[i]);
            while (!atomic_load(&announced)) usleep(100);
        }
    puts("ready");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) < 0 && errno == EINTR) STAY;
    return 0;
}
