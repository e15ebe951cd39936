/* Four threads, work-1 to work-4, that spend 60, 30 and 10 % of their CPU time in three functions.
 *
 *   cc -O2 -g -pthread demos/work.c -o work && ./work
 *   sudo sampletop -p $(pgrep -x work)
 *
 * What to see: one group `work-` of 4 threads; under it sixty 60 %, thirty 30 %, ten 10 % of the group's time.
 * Press m for CPU time: the same shares.
 *
 * Prints "ready" when the threads run. For every line on stdin it prints what it measured of itself by the CPU clocks
 * of its threads: "sixty NS thirty NS ten NS". It ends with stdin, or after the seconds named as its argument. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIXTY, THIRTY, TEN, FUNCTIONS };
static _Atomic uint64_t spent[FUNCTIONS];

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Burns `ns` of this thread's CPU time, all of it in the caller's own loop: the clock is asked only now and then. */
#define BURN(ns)                                                             \
    uint64_t from = cpu_ns(), till = from + (ns), now = from;                \
    volatile uint64_t x = 1;                                                 \
    while (now < till) {                                                     \
        for (int i = 0; i < 20000; i++) x = x * 6364136223846793005u + 1;    \
        now = cpu_ns();                                                      \
    }                                                                        \
    return now - from

__attribute__((noinline)) uint64_t sixty(uint64_t unit_ns) { BURN(6 * unit_ns); }
__attribute__((noinline)) uint64_t thirty(uint64_t unit_ns) { BURN(3 * unit_ns); }
__attribute__((noinline)) uint64_t ten(uint64_t unit_ns) { BURN(1 * unit_ns); }

__attribute__((noinline)) void one_round(uint64_t unit_ns) {
    atomic_fetch_add(&spent[SIXTY], sixty(unit_ns));
    atomic_fetch_add(&spent[THIRTY], thirty(unit_ns));
    atomic_fetch_add(&spent[TEN], ten(unit_ns));
}

static void *work(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "work-%d", (int)(intptr_t)arg);
    pthread_setname_np(pthread_self(), name);
    /* Rounds of 3 to 9 ms, never twice the same: no sampler can fall into step with them. */
    uint64_t random = (uint64_t)(intptr_t)arg;
    for (;;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        one_round(300000 + (random >> 32) % 600000);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        int seconds = atoi(argv[1]);
        if (seconds < 1) {
            fprintf(stderr, "usage: %s [SECONDS]\n", argv[0]);
            return 2;
        }
        alarm((unsigned)seconds);
    }
    for (int i = 1; i <= 4; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(intptr_t)i) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    char line[64];
    while (fgets(line, sizeof line, stdin))
        printf("sixty %llu thirty %llu ten %llu\n", (unsigned long long)spent[SIXTY],
               (unsigned long long)spent[THIRTY], (unsigned long long)spent[TEN]);
    if (argc > 1) pause(); /* stdin is closed: until the alarm */
    return 0;
}
