// `crowd N B`: N threads that wait, each at the end of as many calls as its number says, and B that spin: in three functions, of
// which they tell after each line how much CPU time each has had, ns.
// `maps N`: N threads that nap 1 ms again and again, at the end of some calls, while one maps and unmaps memory without rest.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define OWN __attribute__((noipa, noinline))
#define STAY __asm__ volatile("" ::: "memory")

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int nothing[2];
static atomic_long announced;
static volatile unsigned long sink;
static int maps;

OWN static void wait_here(long n) {
    struct epoll_event event;
    char byte;
    if (maps) {
        struct timespec nap = {0, 1000000};
        for (;;) {
            nanosleep(&nap, NULL);
            for (int i = 0; i < 1000; i++) sink++;
        }
    }
    switch (n % 4) {
    case 0:
        pthread_mutex_lock(&mutex);
        announced++;
        for (;;) pthread_cond_wait(&never, &mutex);
    case 1:
        announced++;
        if (read(nothing[0], &byte, 1)) STAY;
        break;
    case 2: {
        int fd = epoll_create1(0);
        announced++;
        if (epoll_wait(fd, &event, 1, -1)) STAY;
        break;
    }
    default:
        announced++;
        sleep(1000);
        STAY;
    }
}

OWN static void odd(long depth, long n);
OWN static void even(long depth, long n) {
    volatile char room[64 + depth % 7 * 16];
    room[0] = 1;
    if (depth) odd(depth - 1, n);
    else wait_here(n);
    room[1] = room[0];
}
OWN static void odd(long depth, long n) {
    if (depth) even(depth - 1, n);
    else wait_here(n);
    STAY;
}

static void *wait_deep(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "wait-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    even((long)arg % 40, (long)arg);
    return arg;
}

enum { SPINNING = 64 };
static volatile long spent[SPINNING][3];

static long thread_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000l + now.tv_nsec;
}
#define BURN(name, which)                                                                                              \
    OWN static void name(long n, long ns) {                                                                            \
        long begin = thread_clock(), now;                                                                              \
        do {                                                                                                           \
            for (int i = 0; i < 1000; i++) sink++;                                                                     \
            now = thread_clock();                                                                                      \
        } while (now < begin + ns);                                                                                    \
        spent[n][which] += now - begin;                                                                                \
    }
BURN(six, 0)
BURN(three, 1)
BURN(one, 2)

static void *spin(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "spin-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    announced++;
    // Rounds of 0.5 to 1.5 ms, never twice the same: no sampler can fall into step with them.
    unsigned long random = (unsigned long)arg;
    for (;;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        long unit = 50000 + (random >> 32) % 100000;
        six((long)arg, 6 * unit);
        three((long)arg, 3 * unit);
        one((long)arg, unit);
        STAY;
    }
}

static void *map(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "maps");
    for (;;) {
        void *place = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (place != MAP_FAILED) munmap(place, 1 << 20);
    }
}

static void start(void *(*work)(void *), long n) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    if (pthread_create(&thread, &attributes, work, (void *)n)) exit(3);
}

int main(int argc, char **argv) {
    if (argc < 3 || pipe(nothing)) return 2;
    maps = !strcmp(argv[1], "maps");
    long count = atol(argv[2]);
    for (long i = 0; i < count; i++) start(wait_deep, i);
    if (maps) start(map, 0);
    while (!maps && announced < count) usleep(1000);
    long spinning = argc > 3 && atol(argv[3]) <= SPINNING ? atol(argv[3]) : 0;
    for (long i = 0; i < spinning; i++) start(spin, i);
    while (!maps && announced < count + spinning) usleep(1000);
    puts("ready");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        for (long i = 0; i < spinning * 3; i++) printf("%ld\n", spent[i / 3][i % 3]);
        fflush(stdout);
    }
    return 0;
}
