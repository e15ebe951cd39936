/* Many threads that wait, and two that work.
 *
 *   cc -O2 -g -pthread -o /tmp/blocked demos/blocked.c && /tmp/blocked 500
 *   sudo "$(command -v sampletop)" -p "$(pidof blocked)"
 *
 * What to see: the group `busy-` with 2 threads in grind_corn and grind_coffee; press i for the idle ones: groups
 * `futex-`, `epoll-`, `read-`, `sleep-`, `poll-`, each thread with its whole stack: start of the thread, wait_outer,
 * wait_inner, wait_in_futex (or epoll, ...), the call. They are read once and cost next to nothing afterwards.
 *
 *   blocked [THREADS [SECONDS]]    THREADS that wait (default 500), SECONDS until it ends (default 0: when killed)
 *
 * Prints `ready` when every thread is where it will stay.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int never[2]; /* a pipe that is never written to */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static atomic_int arrived;
static volatile int forever = 1;

/* Never inlined, and no call is the last thing a function does: each is a frame of its own. */
#define FRAME __attribute__((noinline))
#define NOT_LAST __asm__ volatile("")

static FRAME void wait_in_futex(void) {
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&arrived, 1);
    while (forever)
        pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
}

static FRAME void wait_in_epoll(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, never[0], &event);
    atomic_fetch_add(&arrived, 1);
    while (forever)
        epoll_wait(epoll, &event, 1, -1);
}

static FRAME void wait_in_read(void) {
    char byte;
    atomic_fetch_add(&arrived, 1);
    while (forever)
        if (read(never[0], &byte, 1) == 0)
            break;
}

static FRAME void wait_in_sleep(void) {
    struct timespec hour = {.tv_sec = 3600};
    atomic_fetch_add(&arrived, 1);
    while (forever)
        nanosleep(&hour, NULL);
}

static FRAME void wait_in_poll(void) {
    struct pollfd one = {.fd = never[0], .events = POLLIN};
    atomic_fetch_add(&arrived, 1);
    while (forever)
        poll(&one, 1, -1);
}

static const struct {
    const char *name;
    void (*wait)(void);
} kinds[] = {
    {"futex", wait_in_futex}, {"epoll", wait_in_epoll}, {"read", wait_in_read},
    {"sleep", wait_in_sleep}, {"poll", wait_in_poll},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static FRAME void wait_inner(int kind) {
    kinds[kind].wait();
    NOT_LAST;
}

static FRAME void wait_outer(int kind) {
    wait_inner(kind);
    NOT_LAST;
}

static void *wait_thread(void *number) {
    int n = (int)(intptr_t)number;
    char name[24];
    snprintf(name, sizeof name, "%s-%d", kinds[n % KINDS].name, n / KINDS + 1);
    pthread_setname_np(pthread_self(), name);
    wait_outer(n % KINDS);
    return NULL;
}

static FRAME void grind_corn(void) {
    uint64_t x = 1;
    for (int i = 0; i < 50000000; i++)
        __asm__ volatile("imul $13, %0" : "+r"(x));
}

static FRAME void grind_coffee(void) {
    uint64_t x = 1;
    for (int i = 0; i < 50000000; i++)
        __asm__ volatile("imul $17, %0" : "+r"(x));
}

static void *busy_thread(void *number) {
    int n = (int)(intptr_t)number;
    char name[24];
    snprintf(name, sizeof name, "busy-%d", n + 1);
    pthread_setname_np(pthread_self(), name);
    atomic_fetch_add(&arrived, 1);
    while (forever) {
        if (n == 0)
            grind_corn();
        else
            grind_coffee();
        NOT_LAST;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int waiting = argc > 1 ? atoi(argv[1]) : 500;
    int seconds = argc > 2 ? atoi(argv[2]) : 0;
    if (argc > 3 || waiting < 0 || seconds < 0) {
        fprintf(stderr, "usage: %s [THREADS [SECONDS]]\n", argv[0]);
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files); /* one epoll descriptor for each fifth thread */
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (pipe(never) != 0)
        return 1;

    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    pthread_t thread;
    for (int i = 0; i < waiting; i++)
        if (pthread_create(&thread, &small, wait_thread, (void *)(intptr_t)i) != 0) {
            fprintf(stderr, "only %d threads can be made here\n", i);
            return 1;
        }
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread, NULL, busy_thread, (void *)(intptr_t)i) != 0)
            return 1;
    while (atomic_load(&arrived) < waiting + 2)
        usleep(1000);
    usleep(100000); /* from their last instruction into the call */
    puts("ready");
    fflush(stdout);
    if (seconds > 0)
        sleep((unsigned)seconds);
    else
        for (;;)
            pause();
    return 0;
}
