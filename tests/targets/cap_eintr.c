// Threads in system calls that return EINTR when a debugger stops them. Counts the EINTRs they see.
// Argument: `stay` (they wait for ever) or `alternate` (they wait 3 ms, work a little, again).
#define _GNU_SOURCE
#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static atomic_ulong eintr, waits;
static int alternate;
static volatile unsigned long sink;

static void note(long result) {
    if (result < 0 && errno == EINTR) atomic_fetch_add(&eintr, 1);
    atomic_fetch_add(&waits, 1);
    if (alternate)
        for (int i = 0; i < 100000; i++) sink += i;
}

static void *in_epoll(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "epoll");
    int fd = epoll_create1(0);
    struct epoll_event event;
    for (;;) note(epoll_wait(fd, &event, 1, alternate ? 3 : -1));
}

static void *in_aio(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "aio");
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 8, &context) < 0) return NULL;
    struct io_event event;
    struct timespec limit = {0, 3000000};
    for (;;) note(syscall(SYS_io_getevents, context, 1, 1, &event, alternate ? &limit : NULL));
}

static void *in_recv(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "recv");
    int pair[2];
    char byte;
    struct timeval limit = {alternate ? 0 : 1000, alternate ? 3000 : 0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return NULL;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (;;) note(recv(pair[0], &byte, 1, 0));
}

static void *spin(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "spin");
    for (;;) sink++;
}

int main(int argc, char **argv) {
    alternate = argc > 1 && !strcmp(argv[1], "alternate");
    void *(*work[])(void *) = {in_epoll, in_aio, in_recv, spin};
    for (unsigned i = 0; i < sizeof work / sizeof *work; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work[i], NULL);
    }
    usleep(50000);
    puts("ready");
    fflush(stdout);
    getchar();
    printf("eintr %lu\nwaits %lu\n", atomic_load(&eintr), atomic_load(&waits));
    fflush(stdout);
    return 0;
}
