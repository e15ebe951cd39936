/* N threads that wait in five ways under wait_outer -> wait_middle -> wait_in_WAY, and 2 that burn CPU in
 * burn_outer -> burn_middle -> burn_inner. Prints "ready" when all of them are where they will stay. */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define FRAME __attribute__((noinline))
/* Keeps a call from becoming a jump. */
#define AFTER __asm__ volatile("")

static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;

FRAME static void wait_in_read(void) {
    int fds[2];
    char byte;
    if (pipe(fds) != 0 || read(fds[0], &byte, 1) < 0) abort();
    AFTER;
}
FRAME static void wait_in_mutex(void) { pthread_mutex_lock(&never); AFTER; }
FRAME static void wait_in_epoll(void) {
    struct epoll_event event;
    epoll_wait(epoll_create1(0), &event, 1, -1);
    AFTER;
}
FRAME static void wait_in_sleep(void) {
    struct timespec t = {100000, 0};
    nanosleep(&t, NULL);
    AFTER;
}
FRAME static void wait_in_poll(void) {
    int fds[2];
    if (pipe(fds) != 0) abort();
    struct pollfd p[2] = {{fds[0], POLLIN, 0}, {fds[0], POLLIN, 0}};
    poll(p, 2, -1);
    AFTER;
}
static void (*const ways[])(void) = {wait_in_read, wait_in_mutex, wait_in_epoll, wait_in_sleep, wait_in_poll};
static const char *const names[] = {"read", "mutex", "epoll", "sleep", "poll"};

FRAME static void wait_middle(int way) { ways[way](); AFTER; }
FRAME static void wait_outer(int way) { wait_middle(way); AFTER; }

static void *waiter(void *arg) {
    int way = (int)(intptr_t)arg % 5;
    char name[16];
    snprintf(name, sizeof name, "%s-%d", names[way], (int)(intptr_t)arg);
    pthread_setname_np(pthread_self(), name);
    wait_outer(way);
    return NULL;
}

FRAME static uint64_t burn_inner(uint64_t x) {
    for (int i = 0; i < 100000; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}
FRAME static uint64_t burn_middle(uint64_t x) { uint64_t y = burn_inner(x); AFTER; return y + 1; }
FRAME static uint64_t burn_outer(uint64_t x) { uint64_t y = burn_middle(x); AFTER; return y + 1; }

static void *burner(void *arg) {
    pthread_setname_np(pthread_self(), "burner");
    volatile uint64_t x = (uint64_t)(intptr_t)arg;
    for (;;) x = burn_outer(x);
    return NULL;
}

/* Where a thread waits cannot be asked from inside; its scheduler state can. Threads that have not begun have no name yet. */
static int are_moving(void) {
    DIR *threads = opendir("/proc/self/task");
    struct dirent *thread;
    int moving = 0;
    if (!threads) abort();
    while ((thread = readdir(threads))) {
        char path[64], line[512];
        snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread->d_name);
        FILE *file = thread->d_name[0] == '.' || atoi(thread->d_name) == getpid() ? NULL : fopen(path, "r");
        if (file && fgets(line, sizeof line, file)) {
            char *name = strchr(line, '('), *end = strrchr(line, ')');
            moving += name && end && strncmp(name, "(burner)", 8) && end[2] != 'S';
        }
        if (file) fclose(file);
    }
    closedir(threads);
    return moving;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 500;
    pthread_mutex_lock(&never);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 128 * 1024);
    pthread_t thread;
    for (int i = 0; i < n + 2; i++)
        if (pthread_create(&thread, &attr, i < n ? waiter : burner, (void *)(intptr_t)i) != 0) return 1;
    while (are_moving()) usleep(20000);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (getchar() != EOF) {}
    return 0;
}
