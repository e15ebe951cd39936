/* Threads deep in recursions, named by what they do:
 *   spin  computes at the end of 5,000 to 6,000 calls, again and again
 *   walk  computes in each of 6,000 calls, down and up
 *   turn  like spin, in turn called by turn_left and turn_right, 3 ms each
 *   wait  waits at the end of 6,000 calls
 * thread_main -> handle_NAME -> down_NAME -> ... -> down_NAME -> leaf_NAME. A call takes more than 100 bytes of stack.
 * Prints `ready` when all of them are under way, and ends when its standard input does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define OWN __attribute__((noipa, noinline))
#define STAY __asm__ volatile("" ::: "memory")

static atomic_int announced;
static int never[2];

static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

OWN static void burn(double seconds) {
    double till = cpu() + seconds;
    while (cpu() < till)
        for (volatile int i = 0; i < 1000; i++) STAY;
}

OWN static void leaf_spin(void) { burn(0.002); STAY; }
OWN static void leaf_walk(void) { for (volatile int i = 0; i < 300; i++) STAY; }
OWN static void leaf_turn(void) { burn(0.003); STAY; }
OWN static void leaf_wait(void) {
    char c;
    atomic_fetch_add(&announced, 1);
    while (read(never[0], &c, 1) < 0) STAY;
    STAY;
}

#define DOWN(name, each)                                                        \
    OWN static void down_##name(int depth) {                                    \
        volatile char room[100];                                                \
        room[depth % 100] = 1;                                                  \
        if (each || depth == 0) leaf_##name();                                  \
        if (depth > 0) down_##name(depth - 1);                                  \
        STAY;                                                                   \
    }
DOWN(spin, 0) DOWN(walk, 1) DOWN(turn, 0) DOWN(wait, 0)

OWN static void handle_spin(int n) { down_spin(5000 + n % 1000); STAY; }
OWN static void handle_walk(int n) { (void)n; down_walk(6000); STAY; }
OWN static void turn_left(void) { down_turn(6000); STAY; }
OWN static void turn_right(void) { down_turn(6000); STAY; }
OWN static void handle_turn(int n) { n % 2 ? turn_left() : turn_right(); STAY; }
OWN static void handle_wait(int n) { (void)n; down_wait(6000); STAY; }

static const struct { const char *name; void (*handle)(int); } kinds[] = {
    {"spin", handle_spin}, {"walk", handle_walk}, {"turn", handle_turn}, {"wait", handle_wait}};

OWN static void *thread_main(void *argument) {
    long kind = (long)argument;
    prctl(PR_SET_NAME, kinds[kind].name);
    if (kinds[kind].handle != handle_wait) atomic_fetch_add(&announced, 1);
    for (int n = 0;; n++) kinds[kind].handle(n);
}

int main(void) {
    pthread_t thread;
    if (pipe(never)) abort();
    for (long kind = 0; kind < 4; kind++)
        if (pthread_create(&thread, 0, thread_main, (void *)kind)) abort();
    while (announced < 4) usleep(1000);
    puts("ready");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0) {}
    return 0;
}
