/* The target of the slowdown measurement: counts what it gets done.
 *
 *   ops busy N      N threads call small functions through a few frames
 *   ops many N      2 such threads, N-2 threads blocked in read, futex, epoll_wait and nanosleep
 *   ops idle N      N threads blocked in the same ways
 *   ops wake N      of N such threads a twentieth works for 20 us every 10 ms
 *   ops work N      of N such threads 4 are busy
 *   ops stir N      N threads wake up five times a second, one of them computes
 *   ops switch N    N pairs of threads play ping-pong over pipes (one operation = one round trip)
 *
 * Prints "ready"; then, for every line on stdin, one line: operations, CPU ns of the process, wall ns. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

struct padded { _Atomic uint64_t count; char pad[56]; };
#define MOST 5000
static struct padded counts[MOST];

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((noinline)) static uint64_t mix(uint64_t x, int rounds) {
    for (int i = 0; i < rounds; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}
__attribute__((noinline)) static uint64_t deep(uint64_t x, int depth) {
    if (depth == 0) return mix(x, 200);
    uint64_t y = deep(x + (uint64_t)depth, depth - 1);
    __asm__ volatile("" : "+r"(y));
    return y + 1;
}

static void *busy(void *arg) {
    struct padded *mine = arg;
    volatile uint64_t sink = 0;
    for (;;) {
        sink = deep(sink, 12);
        atomic_fetch_add_explicit(&mine->count, 1, memory_order_relaxed);
    }
    return NULL;
}

/* 20 us of work, 10 ms of sleep. */
static void *briefly(void *arg) {
    struct padded *mine = arg;
    struct timespec rest = {0, 10 * 1000 * 1000};
    volatile uint64_t sink = 0;
    for (;;) {
        for (uint64_t end = now(CLOCK_MONOTONIC) + 20000; now(CLOCK_MONOTONIC) < end;) sink = deep(sink, 12);
        atomic_fetch_add_explicit(&mine->count, 1, memory_order_relaxed);
        nanosleep(&rest, NULL);
    }
    return NULL;
}

/* Wakes up five times a second; the first wait differs, so that wake-ups spread. */
static void *stirring(void *arg) {
    struct padded *mine = arg;
    struct timespec rest = {0, (mine - counts) * (200 * 1000 * 1000 / MOST)};
    for (;;) {
        nanosleep(&rest, NULL);
        rest.tv_nsec = 200 * 1000 * 1000;
        atomic_fetch_add_explicit(&mine->count, 1, memory_order_relaxed);
    }
    return NULL;
}

static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;

static void *blocked(void *arg) {
    int fds[2];
    char byte;
    switch ((int)(intptr_t)arg % 4) {
    case 0:
        if (pipe(fds) == 0 && read(fds[0], &byte, 1)) {}
        break;
    case 1: pthread_mutex_lock(&never); break;
    case 2: {
        struct epoll_event event;
        epoll_wait(epoll_create1(0), &event, 1, -1);
        break;
    }
    default: sleep(1000000);
    }
    return NULL;
}

struct pair { int in, out; struct padded *mine; };

static void *player(void *arg) {
    struct pair *pair = arg;
    char byte = 0;
    for (;;) {
        if (write(pair->out, &byte, 1) != 1 || read(pair->in, &byte, 1) != 1) exit(1);
        if (pair->mine) atomic_fetch_add_explicit(&pair->mine->count, 1, memory_order_relaxed);
    }
    return NULL;
}

static void start(void *(*body)(void *), void *arg) {
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    if (pthread_create(&thread, &attr, body, arg) != 0) { perror("pthread_create"); exit(1); }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int n = atoi(argv[2]);
    if (n < 1 || n > MOST) return 2;
    if (strcmp(argv[1], "busy") == 0) {
        for (int i = 0; i < n; i++) start(busy, &counts[i]);
    } else if (strcmp(argv[1], "stir") == 0) {
        for (int i = 0; i < n; i++) start(i == 0 ? busy : stirring, &counts[i]);
    } else if (strcmp(argv[1], "switch") != 0) {
        int wakes = strcmp(argv[1], "wake") == 0;
        int active = wakes ? n / 20 : strcmp(argv[1], "work") == 0 ? 4 : strcmp(argv[1], "many") == 0 ? 2 : 0;
        pthread_mutex_lock(&never);
        for (int i = 0; i < n; i++)
            if (i < active) start(wakes ? briefly : busy, &counts[i]);
            else start(blocked, (void *)(intptr_t)i);
    } else {
        for (int i = 0; i < n; i++) {
            int there[2], back[2];
            if (pipe(there) || pipe(back)) return 1;
            struct pair *ping = malloc(sizeof *ping), *pong = malloc(sizeof *pong);
            *ping = (struct pair){back[0], there[1], &counts[i]};
            *pong = (struct pair){there[0], back[1], NULL};
            start(player, ping);
            start(player, pong);
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        uint64_t total = 0;
        for (int i = 0; i < MOST; i++) total += atomic_load_explicit(&counts[i].count, memory_order_relaxed);
        printf("%llu %llu %llu\n", (unsigned long long)total, (unsigned long long)now(CLOCK_PROCESS_CPUTIME_ID),
               (unsigned long long)now(CLOCK_MONOTONIC));
    }
    return 0;
}
