/* Threads that wait for other processes, named after the kind of connection. Prints "ready" when all threads and processes are
 * where they will stay, then a line "NAME STATE TEXT" for each thread: what sampletop shall say, and "end".
 * The first argument is a folder for its sockets. With "nobody" behind it the threads' process becomes nobody's, while the others
 * stay root's. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "peers.c:%d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } } while (0)
#define NAME "peer\033[2J" /* what is shown is cleaned */
#define CLEAN "peer[2J"

struct wait {
    const char *name, *state;
    int fd, call, other; /* call: what the thread does with the descriptor; other: a second one to wait for, or -1 */
    char text[300];
    _Atomic int tid;
};
static struct wait waits[32];
static int count;

/* What the other processes do. */
enum { RECEIVE, EPOLL, POLL, BURN, PAUSE, SLEEP, STOP, CLOSE };

static void act(int what, int fd) {
    static char bytes[4096];
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd two[] = {{-1, POLLIN, 0}, {fd, POLLIN, 0}};
    int set;
    switch (what) {
    case RECEIVE: for (;;) recv(fd, bytes, sizeof bytes, 0);
    case EPOLL:
        CHECK((set = epoll_create1(0)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        for (;;) epoll_wait(set, &event, 1, -1);
    case POLL: for (;;) poll(two, 2, -1);
    case BURN: for (volatile int n = 0;; n++) {}
    case PAUSE: for (;;) pause();
    case SLEEP: for (;;) sleep(100000);
    case STOP: for (;;) raise(SIGSTOP);
    case CLOSE: close(fd); for (;;) pause();
    }
}

static int file_begins(int pid, const char *file, const char *with) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *of = fopen(path, "r");
    CHECK(of && fgets(line, sizeof line, of));
    fclose(of);
    if (strcmp(file, "stat") == 0) {
        char *state = strrchr(line, ')');
        CHECK(state);
        return state[2] == *with;
    }
    return strncmp(line, with, strlen(with)) == 0;
}

static int is_nobody;
#define NOBODY 65534

/* Makes a process end with the one that started it. Its saved user id lets nobody end it, but not look into it. */
static void become_peer(const char *name) {
    if (is_nobody) CHECK(setresuid(0, 0, NOBODY) == 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, name);
}
static int begin(const char *name) {
    int pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) become_peer(name);
    return pid;
}

static void until_there(int pid, int what) {
    char call[8];
    const int calls[] = {SYS_recvfrom, SYS_epoll_wait, SYS_poll, 0, SYS_pause, SYS_clock_nanosleep, 0, SYS_pause};
    snprintf(call, sizeof call, "%d ", calls[what]);
    while (!(what == BURN ? file_begins(pid, "stat", "R")
             : what == STOP ? file_begins(pid, "stat", "T") : file_begins(pid, "syscall", call)))
        usleep(1000);
}

/* Starts a process that has `fd`, and closes `close_too` in it. */
static int peer_with(const char *name, int what, int fd, int close_too) {
    int pid = begin(name);
    if (pid == 0) {
        close(close_too);
        act(what, fd);
    }
    return pid;
}

static struct wait *add(const char *name, const char *state, int fd, int call) {
    struct wait *w = &waits[count++];
    *w = (struct wait){.name = name, .state = state, .fd = fd, .call = call, .other = -1};
    return w;
}
#define SAY(w, ...) snprintf((w)->text, sizeof (w)->text, __VA_ARGS__)

/* A connection over TCP to a process that does `what`. */
static void tcp(const char *name, int family, int what, const char *doing) {
    int listener = socket(family, SOCK_STREAM, 0), fd = socket(family, SOCK_STREAM, 0);
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr *at = family == AF_INET ? (void *)&at4 : (void *)&at6;
    socklen_t length = family == AF_INET ? sizeof at4 : sizeof at6;
    if (listener < 0 || bind(listener, at, length) != 0) {
        CHECK(family == AF_INET6);
        SAY(add(name, "io", -1, SYS_pause), "-"); /* there is no IPv6 here */
        return;
    }
    CHECK(listen(listener, 1) == 0 && getsockname(listener, at, &length) == 0 && connect(fd, at, length) == 0);
    int far = accept(listener, NULL, NULL);
    CHECK(far >= 0 && close(listener) == 0);
    int pid = peer_with(NAME, what, far, fd);
    close(far);
    until_there(pid, what);
    int port = ntohs(family == AF_INET ? at4.sin_port : at6.sin6_port);
    struct wait *w = add(name, "io", fd, SYS_recvfrom);
    SAY(w, "recv fd %d -> " CLEAN "[%d]%s (%s:%d)", fd, pid, doing, family == AF_INET ? "127.0.0.1" : "[::1]", port);
}

/* A socket of IPv6 that serves a client of IPv4. */
static void tcp_mapped(const char *name) {
    int listener = socket(AF_INET6, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), off = 0;
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    socklen_t length = sizeof at6;
    if (listener < 0 || setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0
        || bind(listener, (void *)&at6, length) != 0) {
        SAY(add(name, "io", -1, SYS_pause), "-");
        return;
    }
    CHECK(listen(listener, 1) == 0 && getsockname(listener, (void *)&at6, &length) == 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = at6.sin6_port};
    CHECK(connect(fd, (void *)&at, sizeof at) == 0);
    int far = accept(listener, NULL, NULL);
    CHECK(far >= 0 && close(listener) == 0);
    int pid = peer_with(NAME, RECEIVE, far, fd);
    close(far);
    until_there(pid, RECEIVE);
    struct wait *w = add(name, "io", fd, SYS_recvfrom);
    SAY(w, "recv fd %d -> " CLEAN "[%d], waits, too (127.0.0.1:%d)", fd, pid, ntohs(at.sin_port));
}

/* A unix socket by its path; `apart`: the other process accepts in a network namespace of its own. */
static void unix_path(const char *name, const char *folder, int apart) {
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd = socket(AF_UNIX, SOCK_STREAM, 0), pid;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/%s", folder, apart ? "apart" : "near");
    if (!apart) CHECK(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
    if ((pid = begin(NAME)) == 0) {
        close(fd);
        if (apart) {
            CHECK(unshare(CLONE_NEWNET) == 0);
            close(listener), listener = socket(AF_UNIX, SOCK_STREAM, 0);
            CHECK(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
        }
        act(RECEIVE, accept(listener, NULL, NULL));
    }
    close(listener);
    while (connect(fd, (void *)&at, sizeof at) != 0) CHECK((errno == ENOENT || errno == ECONNREFUSED) && usleep(1000) == 0);
    until_there(pid, RECEIVE);
    struct wait *w = add(name, "io", fd, SYS_recvfrom);
    SAY(w, "recv fd %d -> " CLEAN "[%d], waits, too (%s)", fd, pid, apart ? "unix socket" : at.sun_path);
    if (apart) SAY(w, "recv fd %d -> " CLEAN "[%d], waits, too (*)", fd, pid);
}

/* A pair of sockets whose other end several processes have, of which `reads` waits for it. */
static void forked(const char *name, int reads) {
    int fds[2], pids[3];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    for (int n = 0; n < 3; n++) {
        pids[n] = peer_with("worker", n == reads ? EPOLL : PAUSE, fds[1], fds[0]);
        until_there(pids[n], n == reads ? EPOLL : PAUSE);
    }
    close(fds[1]);
    struct wait *w = add(name, "io", fds[0], SYS_recvfrom);
    if (reads < 0) SAY(w, "recv fd %d -> worker[%d,%d,%d] (unix socket)", fds[0], pids[0], pids[1], pids[2]);
    else SAY(w, "recv fd %d -> worker[%d], waits, too (unix socket)", fds[0], pids[reads]);
}

/* A pipe; the thread reads or writes. */
static void pipe_to(const char *name, int writes, int what, const char *doing) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    int near = fds[writes], far = fds[!writes];
    int pid = peer_with(NAME, what, far, near);
    close(far);
    until_there(pid, what);
    struct wait *w = add(name, "io", near, writes ? SYS_write : SYS_read);
    SAY(w, "%s fd %d pipe %s " CLEAN "[%d]%s", writes ? "write" : "read", near, writes ? "->" : "<-", pid, doing);
}

/* A process that closed its end, and pipes and sockets of which this process has both ends. */
static void none(const char *name, int what) {
    int fds[2], unused[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 && pipe(unused) == 0);
    until_there(peer_with(NAME, what, fds[1], fds[0]), what);
    struct wait *w = add(name, "io", fds[0], SYS_recvfrom);
    SAY(w, "recv fd %d unix socket", fds[0]);
}

/* As PostgreSQL does: the command line is a title. */
static void titled(const char *name) {
    int fds[2], pid;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    if ((pid = begin(NAME)) == 0) {
        char fd[16];
        snprintf(fd, sizeof fd, "%d", fds[1]);
        close(fds[0]);
        execl("/proc/self/exe", "postgres: app shop [local] SELECT", "--titled", fd, is_nobody ? "nobody" : NULL, NULL);
        CHECK(0);
    }
    close(fds[1]);
    until_there(pid, SLEEP);
    struct wait *w = add(name, "io", fds[0], SYS_recvfrom);
    SAY(w, "recv fd %d -> postgres[%d] SELECT, in sleep (unix socket)", fds[0], pid);
}

static void *run(void *arg) {
    static char bytes[1 << 20];
    struct wait *w = arg;
    struct pollfd one = {w->fd, POLLIN, 0};
    prctl(PR_SET_NAME, w->name);
    w->tid = gettid();
    switch (w->call) {
    case SYS_recvfrom: recv(w->fd, bytes, 1, 0); break;
    case SYS_read: CHECK(read(w->fd, bytes, 1) >= 0); break;
    case SYS_write: CHECK(write(w->fd, bytes, sizeof bytes) >= 0); break;
    case SYS_poll: poll(&one, 1, -1); break;
    default: for (;;) pause();
    }
    fprintf(stderr, "peers.c: %s did not wait: %s\n", w->name, strerror(errno));
    exit(1);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    is_nobody = strcmp(argv[argc - 1], "nobody") == 0;
    if (strcmp(argv[1], "--titled") == 0) {
        become_peer("postgres");
        act(SLEEP, atoi(argv[2]));
    }
    tcp("tcp-waits", AF_INET, RECEIVE, ", waits, too");
    tcp("tcp-polls", AF_INET, POLL, ", waits, too");
    tcp("tcp-runs", AF_INET, BURN, ", runs");
    tcp("tcp6-epoll", AF_INET6, EPOLL, ", waits, too");
    tcp_mapped("tcp-mapped");
    unix_path("unix-path", argv[1], 0);
    unix_path("unix-apart", argv[1], 1);
    forked("forked-none", -1);
    forked("forked-one", 1);
    pipe_to("pipe-from", 0, SLEEP, ", in sleep");
    pipe_to("pipe-to", 1, STOP, ", stopped");
    titled("titled");
    /* Last: those that are started later would inherit the end that stays open here. */
    none("closed", CLOSE);
    struct wait *polls = add("poll-one", "io", waits[0].fd, SYS_poll);
    SAY(polls, "poll%s", waits[0].text + strlen("recv"));
    if (is_nobody)
        CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    for (int n = 0; n < count; n++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, run, &waits[n]) == 0);
    }
    for (int n = 0; n < count; n++) {
        char task[32], call[8];
        snprintf(call, sizeof call, "%d ", waits[n].call);
        while (waits[n].tid == 0) usleep(1000);
        snprintf(task, sizeof task, "task/%d/syscall", waits[n].tid);
        while (!file_begins(getpid(), task, call)) usleep(1000);
    }
    puts("ready");
    for (int n = 0; n < count; n++) printf("%s %s %s\n", waits[n].name, waits[n].state, waits[n].text);
    puts("end");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) != 0) {}
    return 0;
}
