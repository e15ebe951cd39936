/* Threads that compute, named by what lies on their stacks between the computing function and its callers:
 *   untouched  40 KiB of which only the first bytes were ever touched: its pages are not in memory
 *   touched    80 KiB, all of them touched: more than can be copied
 * thread_main -> below_NAME -> spin. Prints `ready` when they are under way, and ends when its standard input does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define OWN __attribute__((noipa, noinline))

static atomic_int announced;

OWN static void spin(volatile char *room) {
    atomic_fetch_add(&announced, 1);
    for (;;) room[0]++;
}

OWN static void below_untouched(void) {
    volatile char room[40 << 10];
    room[0] = 1;
    spin(room);
}

OWN static void below_touched(void) {
    volatile char room[80 << 10];
    memset((void *)room, 1, sizeof room);
    spin(room);
}

OWN static void *thread_main(void *argument) {
    prctl(PR_SET_NAME, argument ? "untouched" : "touched");
    argument ? below_untouched() : below_touched();
    return NULL;
}

int main(void) {
    pthread_t thread;
    for (long kind = 0; kind < 2; kind++)
        if (pthread_create(&thread, 0, thread_main, (void *)kind)) abort();
    while (announced < 2) usleep(1000);
    puts("ready");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0) {}
    return 0;
}
