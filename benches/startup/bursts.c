/* The target of the measurement of first activity: it sleeps for 3 s and then works for 100 ms, five times.
 *
 * Each millisecond of a burst is another function, so the functions of a profile tell when it was observed. Prints
 * "ready" and begins after a line on stdin; it exits when stdin is closed. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The number keeps the compiler from merging them. */
#define STEP(n) \
    __attribute__((noinline)) static void step_##n(uint64_t end) { \
        while (now() < end) __asm__ volatile("" : : "i"(1##n)); \
        __asm__ volatile("nop # " #n); \
    }
#define TEN(do, n) do(n##0) do(n##1) do(n##2) do(n##3) do(n##4) do(n##5) do(n##6) do(n##7) do(n##8) do(n##9)
#define HUNDRED(do) TEN(do, 0) TEN(do, 1) TEN(do, 2) TEN(do, 3) TEN(do, 4) TEN(do, 5) TEN(do, 6) TEN(do, 7) TEN(do, 8) TEN(do, 9)
HUNDRED(STEP)
#define NAME(n) step_##n,
static void (*const steps[])(uint64_t) = {HUNDRED(NAME)};

#define BURST(n) \
    __attribute__((noinline)) static void burst_##n(void) { \
        uint64_t begin = now(); \
        for (uint64_t i = 0; i < 100; i++) steps[i](begin + (i + 1) * 1000000); \
        __asm__ volatile("nop # " #n); \
    }
BURST(0) BURST(1) BURST(2) BURST(3) BURST(4)
static void (*const bursts[])(void) = {burst_0, burst_1, burst_2, burst_3, burst_4};

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    getchar();
    for (int i = 0; i < 5; i++) {
        struct timespec rest = {3, 0};
        nanosleep(&rest, NULL);
        bursts[i]();
    }
    puts("done");
    while (getchar() != EOF) {}
    return 0;
}
