/* Threads that block in many system calls, each at the end of a chain of calls that its name tells:
 * thread_main -> outer_KIND -> middle_KIND -> wait_KIND. Prints `ready` when every thread has announced itself.
 * With an argument, that shared library (uw_library.c) is loaded and one more thread waits inside it. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define OWN __attribute__((noipa, noinline))
/* After a call: it is no tail call, and the frame is needed. */
#define STAY __asm__ volatile("" ::: "memory")

static atomic_int announced;
static int never[2]; /* a pipe that is never written to */
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t quiet = PTHREAD_COND_INITIALIZER;

OWN static void announce(void) { atomic_fetch_add(&announced, 1); }

OWN static void wait_read(void) {
    char c;
    announce();
    while (read(never[0], &c, 1) < 0 && errno == EINTR) STAY;
    STAY;
}
OWN static void wait_futex(void) {
    announce();
    pthread_mutex_lock(&held);
    STAY;
}
OWN static void wait_cond(void) {
    pthread_mutex_lock(&own);
    announce();
    for (;;) pthread_cond_wait(&quiet, &own);
}
OWN static void wait_epoll(void) {
    int fd = epoll_create1(0);
    struct epoll_event event;
    announce();
    while (epoll_wait(fd, &event, 1, -1) < 0 && errno == EINTR) STAY;
    STAY;
}
OWN static void wait_sleep(void) {
    struct timespec left = {1000, 0};
    announce();
    while (nanosleep(&left, &left) < 0) STAY;
    STAY;
}
OWN static void wait_poll(void) {
    struct pollfd fd = {never[0], POLLIN, 0};
    announce();
    while (poll(&fd, 1, -1) < 0 && errno == EINTR) STAY;
    STAY;
}
OWN static void wait_select(void) {
    fd_set set;
    announce();
    do {
        FD_ZERO(&set);
        FD_SET(never[0], &set);
    } while (select(never[0] + 1, &set, 0, 0, 0) < 0 && errno == EINTR);
    STAY;
}
OWN static void wait_recv(void) {
    int pair[2];
    char c;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    announce();
    while (recv(pair[0], &c, 1, 0) < 0 && errno == EINTR) STAY;
    STAY;
}
/* A large frame. */
OWN static void wait_big(void) {
    char room[20000];
    memset(room, 1, sizeof room);
    announce();
    while (read(never[0], room, 1) < 0 && errno == EINTR) STAY;
    __asm__ volatile("" ::"r"(room) : "memory");
}
/* A frame whose size the code does not tell. */
OWN static void wait_alloca(void) {
    volatile int size = 300;
    char *room = alloca(size);
    memset(room, 0, size);
    announce();
    while (read(never[0], room, 1) < 0 && errno == EINTR) STAY;
    __asm__ volatile("" ::"r"(room) : "memory");
}
/* A stack realigned to 64 bytes. */
OWN static void wait_align(void) {
    volatile int size = 100;
    char *more = alloca(size);
    _Alignas(64) char room[128];
    announce();
    while (read(never[0], room, 1) < 0 && errno == EINTR) STAY;
    __asm__ volatile("" ::"r"(room), "r"(more) : "memory");
}
/* The system call right here, not in libc. */
OWN static void wait_inline(void) {
    char c;
    long result, number = SYS_read, fd = never[0];
    announce();
    do {
        __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(fd), "S"(&c), "d"(1L) : "rcx", "r11", "memory");
    } while (result == -EINTR);
    STAY;
}
OWN static int compare(const void *a, const void *b) {
    (void)a, (void)b;
    wait_read();
    STAY;
    return 0;
}
/* Through a function of libc that calls back. */
OWN static void wait_qsort(void) {
    int values[4] = {4, 3, 2, 1};
    qsort(values, 4, sizeof *values, compare);
    STAY;
}
OWN static void recurse(int depth) {
    if (depth > 0)
        recurse(depth - 1);
    else
        wait_read();
    STAY;
}
OWN static void wait_deep(void) {
    recurse(400);
    STAY;
}
OWN static void wait_too_deep(void) {
    recurse(3000);
    STAY;
}
/* A recursion that itself waits. */
OWN static void self(int depth) {
    char c;
    volatile int keep = depth;
    if (depth > 0) {
        self(depth - 1);
    } else {
        announce();
        while (read(never[0], &c, 1) < 0 && errno == EINTR) STAY;
    }
    keep++;
}
OWN static void wait_self(void) {
    self(5);
    STAY;
}
/* The same with frames whose size the code does not tell: without rbp nothing tells which of them is the innermost. */
OWN static void vague(int depth) {
    volatile int size = 300;
    char *room = alloca(size);
    memset(room, 0, size);
    if (depth > 0) {
        vague(depth - 1);
    } else {
        announce();
        while (read(never[0], room, 1) < 0 && errno == EINTR) STAY;
    }
    __asm__ volatile("" ::"r"(room) : "memory");
}
OWN static void wait_vague(void) {
    vague(5);
    STAY;
}
OWN static void handler(int signal) {
    (void)signal;
    wait_read();
    STAY;
}
/* Waits in a signal handler that interrupted it. */
OWN static void wait_signal(void) {
    pthread_kill(pthread_self(), SIGUSR1);
    STAY;
}
/* The same, interrupted in code of its own rather than in a system call. */
OWN static void wait_trap(void) {
    __asm__ volatile("ud2" ::: "memory");
    STAY;
}
OWN static void wait_altstack(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    pthread_kill(pthread_self(), SIGUSR2);
    STAY;
}
static ucontext_t back;
OWN static void coroutine(void) {
    wait_read();
    STAY;
}
OWN static void wait_context(void) {
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = malloc(65536);
    context.uc_stack.ss_size = 65536;
    context.uc_link = &back;
    makecontext(&context, coroutine, 0);
    swapcontext(&back, &context);
    STAY;
}
static void (*pointer)(void) = wait_read;
OWN static void wait_pointer(void) {
    pointer();
    STAY;
}
static void (*in_library)(void (*)(void));
OWN static void wait_library(void) {
    in_library(wait_read);
    STAY;
}

#define KINDS(X)                                                                                                       \
    X(read) X(futex) X(cond) X(epoll) X(sleep) X(poll) X(select) X(recv) X(big) X(alloca) X(align) X(inline) X(qsort)  \
    X(deep) X(too_deep) X(signal) X(trap) X(altstack) X(context) X(pointer) X(self) X(vague)     \
    X(library)

#define CHAIN(kind)                                                                                                    \
    OWN static void middle_##kind(int a, int b) {                                                                      \
        volatile int sum = a + b;                                                                                      \
        wait_##kind();                                                                                                 \
        sum++;                                                                                                         \
    }                                                                                                                  \
    OWN static void outer_##kind(void) {                                                                               \
        middle_##kind(1, 2);                                                                                           \
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

OWN static void start(const struct kind *kind) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    pthread_create(&thread, &attributes, thread_main, (void *)kind);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = handler};
    int count = sizeof kinds / sizeof *kinds, started = 0;
    if (pipe(never)) return 1;
    pthread_mutex_lock(&held);
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGILL, &action, 0);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, 0);
    if (argc > 1) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        in_library = (void (*)(void (*)(void)))dlsym(library, "library_entry");
    }
    for (int i = 0; i < count; i++)
        if (strcmp(kinds[i].name, "library") || in_library) {
            start(&kinds[i]);
            started++;
        }
    while (atomic_load(&announced) < started) usleep(1000);
    puts("ready");
    fflush(stdout);
    /* Until the test closes its end. */
    char c;
    while (read(0, &c, 1) < 0 && errno == EINTR) STAY;
    return 0;
}
