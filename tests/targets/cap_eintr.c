// Threads in the system calls that return EINTR when a debugger or a signal stops them, a thread for each. Counts the EINTRs
// they see. Argument: `stay` (they wait forever) or `alternate` (they wait 3 ms, work a little, again; those that know no time
// limit stay). After each line: all EINTRs and all returns; after `each`, EINTRs by call, `absent` for a call that fails.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static int alternate;
static volatile unsigned long sink;
static struct timespec limit = {0, 3000000};
static int semaphores;

struct call {
    const char *name;
    long (*wait)(long fd);
    long (*open)(void);
    int stays;
    atomic_ulong eintr, waits;
    atomic_int absent;
};

static int bound(int socket_type, int listening) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval wait = {alternate ? 0 : 1000, alternate ? 3000 : 0};
    int fd = socket(AF_INET, socket_type, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address)) return -1;
    if (listening && listen(fd, 1)) return -1;
    return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) ? -1 : fd;
}

static long nothing(void) { return 0; }
static long epoll(void) { return epoll_create1(0); }
static long in_epoll(long fd) {
    struct epoll_event event;
    return epoll_wait(fd, &event, 1, alternate ? 3 : -1);
}
// With a limit that is far away the kernel takes another way than without.
static long in_epoll_timed(long fd) {
    struct epoll_event event;
    return epoll_wait(fd, &event, 1, alternate ? 3 : 1000000);
}
static long in_epoll_pwait2(long fd) {
    struct epoll_event event;
    return syscall(SYS_epoll_pwait2, fd, &event, 1, alternate ? &limit : NULL, NULL, 0);
}
static long udp(void) { return bound(SOCK_DGRAM, 0); }
static long listening(void) { return bound(SOCK_STREAM, 1); }
// A connection to ourselves that is never written to.
static long tcp(void) {
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int listener = bound(SOCK_STREAM, 1), fd = bound(SOCK_STREAM, 0);
    if (listener < 0 || fd < 0 || getsockname(listener, (struct sockaddr *)&address, &size)) return -1;
    return connect(fd, (struct sockaddr *)&address, size) ? -1 : fd;
}
static long in_recv(long fd) {
    char byte;
    return recv(fd, &byte, 1, 0);
}
static long in_accept(long fd) { return accept(fd, NULL, NULL); }
static long semaphore(void) { return semaphores; }
static long in_semop(long id) {
    struct sembuf take = {0, -1, 0};
    return alternate ? semtimedop(id, &take, 1, &limit) : semop(id, &take, 1);
}
static long in_sigtimedwait(long fd) {
    struct timespec far = {1000000, 0};
    sigset_t none_comes;
    sigemptyset(&none_comes);
    sigaddset(&none_comes, SIGRTMAX - fd);
    return sigtimedwait(&none_comes, NULL, alternate ? &limit : &far);
}
static long in_sigwaitinfo(long fd) {
    sigset_t none_comes;
    sigemptyset(&none_comes);
    sigaddset(&none_comes, SIGRTMAX - fd);
    return sigwaitinfo(&none_comes, NULL);
}
static long aio(void) {
    static _Thread_local aio_context_t context;
    return syscall(SYS_io_setup, 8, &context) < 0 ? -1 : (long)context;
}
static long in_aio(long context) {
    struct io_event event;
    return syscall(SYS_io_getevents, context, 1, 1, &event, alternate ? &limit : NULL);
}
static long in_aio_timed(long context) {
    struct timespec far = {1000000, 0};
    struct io_event event;
    return syscall(SYS_io_getevents, context, 1, 1, &event, alternate ? &limit : &far);
}
static long uring(void) {
    struct io_uring_params parameters = {0};
    return syscall(SYS_io_uring_setup, 4, &parameters);
}
static long in_uring(long fd) { return syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0); }

static struct call calls[] = {
    {"epoll", in_epoll, epoll, 0, 0, 0, 0},
    {"epoll-timed", in_epoll_timed, epoll, 0, 0, 0, 0},
    {"epoll_pwait2", in_epoll_pwait2, epoll, 0, 0, 0, 0},
    {"accept", in_accept, listening, 0, 0, 0, 0},
    {"recv", in_recv, tcp, 0, 0, 0, 0},
    {"recv-udp", in_recv, udp, 0, 0, 0, 0},
    {"semop", in_semop, semaphore, 0, 0, 0, 0},
    {"sigtimedwait", in_sigtimedwait, nothing, 0, 0, 0, 0},
    {"sigwaitinfo", in_sigwaitinfo, nothing, 1, 0, 0, 0},
    {"aio", in_aio, aio, 0, 0, 0, 0},
    {"aio-timed", in_aio_timed, aio, 0, 0, 0, 0},
    {"io_uring", in_uring, uring, 1, 0, 0, 0},
};
#define CALLS (sizeof calls / sizeof *calls)

static void *wait_for_ever(void *arg) {
    struct call *call = arg;
    pthread_setname_np(pthread_self(), call->name);
    long fd = call->open();
    if (fd < 0) {
        call->absent = 1;
        return NULL;
    }
    for (;;) {
        long result = call->wait(fd);
        call->waits++;
        if (result < 0 && errno == EINTR) call->eintr++;
        else if (!alternate || call->stays || (result < 0 && errno != EAGAIN)) {
            // It has come back for no good reason.
            call->absent = 1;
            return NULL;
        }
        if (alternate)
            for (int i = 0; i < 100000; i++) sink += i;
    }
}

static void *spin(void *arg) {
    pthread_setname_np(pthread_self(), "spin");
    for (;;) sink++;
    return arg;
}

int main(int argc, char **argv) {
    char line[16];
    alternate = argc > 1 && !strcmp(argv[1], "alternate");
    int ends[2];
    if (pipe(ends) || (semaphores = semget(IPC_PRIVATE, 1, 0600)) < 0) return 2;
    // Semaphores stay when their process is killed: a child takes them away.
    if (!fork()) {
        char end;
        for (int fd = 0; fd < 3; fd++) close(fd);
        close(ends[1]);
        if (read(ends[0], &end, 1) == 0) semctl(semaphores, 0, IPC_RMID);
        _exit(0);
    }
    // For those who wait for them.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_t thread;
    for (unsigned i = 0; i < CALLS; i++) pthread_create(&thread, NULL, wait_for_ever, &calls[i]);
    pthread_create(&thread, NULL, spin, NULL);
    usleep(50000);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long eintr = 0, waits = 0;
        for (unsigned i = 0; i < CALLS; i++) {
            eintr += calls[i].eintr;
            waits += calls[i].waits;
            if (!strcmp(line, "each\n"))
                printf("%s %s%lu\n", calls[i].name, calls[i].absent ? "absent " : "", calls[i].eintr);
        }
        if (strcmp(line, "each\n")) printf("eintr %lu\nwaits %lu\n", eintr, waits);
        fflush(stdout);
    }
    return 0;
}
