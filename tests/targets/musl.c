// Threads that block in musl, which has no unwind information, each in a chain of calls: thread_KIND, middle_KIND,
// inner_KIND. Built by musl-gcc.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#define APART __attribute__((noinline))

static int pipe_of_nothing[2];
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t free_one = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t empty;

#define KIND(name, ...)                                                                                              \
    static APART int inner_##name(int x) {                                                                           \
        volatile char room[40];                                                                                      \
        room[x & 31] = 1;                                                                                            \
        __VA_ARGS__;                                                                                                 \
        return room[x & 31] + x;                                                                                     \
    }                                                                                                                \
    static APART int middle_##name(int x) {                                                                          \
        volatile char room[200];                                                                                     \
        room[x & 63] = 2;                                                                                            \
        int result = inner_##name(x + 1);                                                                            \
        return result + room[x & 63];                                                                                \
    }                                                                                                                \
    static void *thread_##name(void *p) {                                                                            \
        prctl(PR_SET_NAME, #name);                                                                                   \
        int result = middle_##name(3);                                                                               \
        return (char *)p + result;                                                                                   \
    }

KIND(read, { char one; if (read(pipe_of_nothing[0], &one, 1) == 1) return 1; })
KIND(mutex, pthread_mutex_lock(&held))
KIND(cond, { pthread_mutex_lock(&free_one); pthread_cond_wait(&never, &free_one); })
KIND(sem, sem_wait(&empty))
KIND(epoll, { struct epoll_event event; epoll_wait(epoll_create1(0), &event, 1, -1); })
KIND(poll, { struct pollfd one = {pipe_of_nothing[0], POLLIN, 0}; poll(&one, 1, -1); })
KIND(sleep, sleep(1000000))
KIND(pause, pause())

int main(void) {
    if (pipe(pipe_of_nothing)) return 1;
    sem_init(&empty, 0, 0);
    pthread_mutex_lock(&held);
    void *(*kinds[])(void *) = {thread_read, thread_mutex, thread_cond,  thread_sem,
                                thread_epoll, thread_poll, thread_sleep, thread_pause};
    pthread_t thread;
    for (int i = 0; i < 8; i++) pthread_create(&thread, 0, kinds[i], 0);
    puts("ready");
    fflush(stdout);
    pthread_join(thread, 0);
    return 0;
}
