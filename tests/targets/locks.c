/* Threads that wait for each other's mutexes. The argument says how:
 *   convoy    six threads take a mutex that the thread "keeper" holds for most of the time, asleep in hold_it
 *   deadlock  "left" and "right" hold a mutex each and wait for the other's; other threads go on
 *   nested    eight threads take two of four mutexes, always in the same order, and hold them for a while
 *   turns     six threads take one mutex in turn, and each holds it for 1 s, asleep in hold_it
 * Prints "ready". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t locks[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                   PTHREAD_MUTEX_INITIALIZER};
static pthread_barrier_t both;

static void pause_us(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

__attribute__((noinline)) static void hold_it(long us) {
    pause_us(us);
    __asm__ volatile("");
}

__attribute__((noinline)) static void take_it(void) {
    pthread_mutex_lock(&locks[0]);
    pthread_mutex_unlock(&locks[0]);
    __asm__ volatile("");
}

/* Holds the mutex for this number of microseconds, again and again. */
static void *keep(void *arg) {
    int us = *(int *)arg;
    for (;;) {
        pthread_mutex_lock(&locks[0]);
        hold_it(us);
        pthread_mutex_unlock(&locks[0]);
        pause_us(5000);
    }
}

static void *take(void *unused) {
    (void)unused;
    for (;;) take_it(), pause_us(1000);
}

__attribute__((noinline)) static void take_other(int other) {
    pthread_mutex_lock(&locks[other]);
    __asm__ volatile("");
}

static void *cross(void *arg) {
    int mine = *(int *)arg;
    pthread_mutex_lock(&locks[mine]);
    pthread_barrier_wait(&both);
    take_other(1 - mine);
    return NULL;
}

static void *nest(void *arg) {
    unsigned seed = *(int *)arg;
    for (;;) {
        int outer = rand_r(&seed) % 3, inner = outer + 1 + rand_r(&seed) % (3 - outer);
        pthread_mutex_lock(&locks[outer]);
        pause_us(rand_r(&seed) % 3000);
        pthread_mutex_lock(&locks[inner]);
        pause_us(rand_r(&seed) % 3000);
        pthread_mutex_unlock(&locks[inner]);
        pthread_mutex_unlock(&locks[outer]);
        pause_us(rand_r(&seed) % 500);
    }
}

static void start(void *(*run)(void *), int arg, const char *name) {
    pthread_t id;
    int *copy = malloc(sizeof *copy);
    *copy = arg;
    if (pthread_create(&id, NULL, run, copy) != 0) exit(1);
    pthread_setname_np(id, name);
}

int main(int count, char **args) {
    const char *how = count > 1 ? args[1] : "";
    char name[16];
    if (strcmp(how, "convoy") == 0) {
        start(keep, 80000, "keeper");
        for (int n = 0; n < 6; n++) snprintf(name, sizeof name, "taker-%d", n), start(take, n, name);
    } else if (strcmp(how, "deadlock") == 0) {
        pthread_barrier_init(&both, NULL, 2);
        start(cross, 0, "left");
        start(cross, 1, "right");
    }
    if (strcmp(how, "turns") == 0)
        for (int n = 0; n < 6; n++) snprintf(name, sizeof name, "turn-%d", n), start(keep, 1000000, name);
    else if (strcmp(how, "convoy") != 0)
        for (int n = 0; n < 8; n++) {
            /* Beside a deadlock the other threads use the other two locks. */
            snprintf(name, sizeof name, "nest-%d", n);
            if (strcmp(how, "nested") == 0) start(nest, n, name);
        }
    pause_us(100000);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
