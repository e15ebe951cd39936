// `BUSY ALTERNATING`: BUSY threads that never wait (busy-N: burn_inner, burn_middle, burn_outer), and ALTERNATING that burn 1 ms and
// sleep 1 ms in turn (turn-N: turn_inner or nanosleep, turn_outer). Says `ready`, and waits.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static void name(const char *kind, void *number) {
    char text[16];
    snprintf(text, sizeof text, "%s-%ld", kind, (long)number);
    pthread_setname_np(pthread_self(), text);
}

__attribute__((noinline)) static void burn_inner(void) {
    for (int i = 0; i < 100000; i++) sink++;
}
__attribute__((noinline)) static void burn_middle(void) {
    for (int i = 0; i < 100; i++) burn_inner();
    sink++;
}
__attribute__((noinline)) static void *burn_outer(void *number) {
    name("busy", number);
    for (;;) burn_middle();
}

__attribute__((noinline)) static void turn_inner(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int i = 0; i < 1000; i++) sink++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 1000000);
}
__attribute__((noinline)) static void *turn_outer(void *number) {
    name("turn", number);
    struct timespec millisecond = {0, 1000000};
    for (;;) {
        turn_inner();
        nanosleep(&millisecond, NULL);
    }
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count < 3) return 2;
    for (long i = 0; i < atol(arguments[1]); i++)
        if (pthread_create(&thread, NULL, burn_outer, (void *)i)) return 1;
    for (long i = 0; i < atol(arguments[2]); i++)
        if (pthread_create(&thread, NULL, turn_outer, (void *)i)) return 1;
    puts("ready");
    fflush(stdout);
    char byte;
    return read(0, &byte, 1) < 0;
}
