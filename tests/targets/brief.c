// Threads that are hardly ever sampled one by one. Prints "ready", begins at a line on stdin, ends at the end of stdin.
//   brief N US      N threads one after the other, each US microseconds on a core in spin(); then "done"
//   bursts N US     N threads, each US microseconds in spin() every 10 ms
//   crowd N         N threads in spin() all the time, on one core
//   idle N          N threads that wait
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

__attribute__((noinline)) void spin(long us) {
    for (long end = cpu_us() + us; cpu_us() < end;)
        for (volatile int i = 0; i < 2000; i++);
}

static long us;

static void *once(void *nothing) {
    spin(us);
    return nothing;
}

static void *bursts(void *nothing) {
    for (;;) {
        spin(us);
        usleep(10000);
    }
    return nothing;
}

static void *ever(void *nothing) {
    for (;;) spin(1000000);
    return nothing;
}

static void *waits(void *nothing) {
    for (;;) pause();
    return nothing;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int n = atoi(argv[2]);
    us = argc > 3 ? atol(argv[3]) : 0;
    int is_brief = !strcmp(argv[1], "brief");
    void *(*work)(void *) = !strcmp(argv[1], "bursts") ? bursts : !strcmp(argv[1], "crowd") ? ever : waits;
    if (work == ever) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    pthread_t thread;
    if (work == waits && !is_brief)
        for (int i = 0; i < n; i++) pthread_create(&thread, NULL, waits, NULL);
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) return 0;
    for (int i = 0; i < n && is_brief; i++) {
        if (pthread_create(&thread, NULL, once, NULL) != 0) return 1;
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < n && work != waits; i++)
        if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
    puts("done");
    fflush(stdout);
    while (getchar() != EOF);
    return 0;
}
