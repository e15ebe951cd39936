/* One thread holds a mutex too long, three wait for it; two more wait for a read-write lock.
 *
 *   cc -O2 -g -pthread -o /tmp/locks demos/locks.c && /tmp/locks
 *   sudo "$(command -v sampletop)" -p "$(pidof locks)"
 *
 * What to see: `clerk-` threads in withdraw > pthread_mutex_lock, state `lock`, most of the time; `bank` in balance_books,
 * half on a core and half asleep, while it holds the mutex. The `reader-` threads wait for `writer` in
 * pthread_rwlock_rdlock, state `lock` as well. The group `queue` is in pthread_cond_wait: that is `wait`, not `lock`.
 *
 *   locks [SECONDS]    how long (default 0: until killed)
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t account = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;

static void burn(int milliseconds) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    int64_t until = t.tv_sec * INT64_C(1000000000) + t.tv_nsec + milliseconds * INT64_C(1000000);
    do {
        for (volatile int i = 0; i < 20000; i++)
            ;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec * INT64_C(1000000000) + t.tv_nsec < until);
}

__attribute__((noinline)) static void balance_books(void) {
    pthread_mutex_lock(&account);
    burn(20);
    usleep(20000);
    pthread_mutex_unlock(&account);
    usleep(5000);
}

__attribute__((noinline)) static void withdraw(void) {
    pthread_mutex_lock(&account);
    burn(1);
    pthread_mutex_unlock(&account);
    usleep(1000);
}

__attribute__((noinline)) static void rewrite_table(void) {
    pthread_rwlock_wrlock(&table);
    usleep(30000);
    pthread_rwlock_unlock(&table);
    usleep(10000);
}

__attribute__((noinline)) static void look_up(void) {
    pthread_rwlock_rdlock(&table);
    burn(1);
    pthread_rwlock_unlock(&table);
    usleep(1000);
}

__attribute__((noinline)) static void take_from_queue(void) {
    pthread_mutex_lock(&queue_lock);
    pthread_cond_wait(&queue_filled, &queue_lock); /* nothing ever comes */
    pthread_mutex_unlock(&queue_lock);
}

static const struct {
    const char *name;
    void (*turn)(void);
} threads[] = {
    {"bank", balance_books},  {"clerk-1", withdraw}, {"clerk-2", withdraw}, {"clerk-3", withdraw},
    {"writer", rewrite_table}, {"reader-1", look_up}, {"reader-2", look_up}, {"queue", take_from_queue},
};
enum { THREADS = sizeof threads / sizeof threads[0] };

static void *run(void *number) {
    int n = (int)(intptr_t)number;
    pthread_setname_np(pthread_self(), threads[n].name);
    for (;;)
        threads[n].turn();
    return NULL;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t thread;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, run, (void *)(intptr_t)i) != 0)
            return 1;
    puts("ready");
    fflush(stdout);
    if (seconds > 0)
        sleep((unsigned)seconds);
    else
        for (;;)
            pause();
    return 0;
}
