/* One thread in each kind of wait, named after it. Prints "ready" when all of them are where they will stay, then a line
 * "NAME STATE TEXT" for each: what sampletop shall say, `*` for what cannot be known here, and "end".
 * The first argument is a folder for its files; with "up" behind it, it first brings up the loopback interface of a network
 * namespace of its own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "waits.c:%d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } } while (0)

struct wait {
    const char *name;
    void (*fall)(struct wait *);
    const char *state;
    int call; /* the system call it ends in */
    char text[200];
    _Atomic int tid; /* when it is about to fall into its wait */
};

static char socket_path[100], file_path[90];

static void about(struct wait *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(w->text, sizeof w->text, format, args);
    va_end(args);
    w->tid = gettid();
}

/* Sockets. */

static int bound(int type, in_addr_t ip, int *port) {
    int fd = socket(AF_INET, type, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip)};
    socklen_t len = sizeof at;
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}
static int to(int port, int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    return fd;
}
static void accept_one(struct wait *w) {
    int port, fd = bound(SOCK_STREAM, INADDR_LOOPBACK, &port);
    CHECK(listen(fd, 1) == 0);
    about(w, "accept fd %d 127.0.0.1:%d", fd, port);
    accept(fd, NULL, NULL);
}
static void accept_any(struct wait *w) {
    int port, fd = bound(SOCK_STREAM, INADDR_ANY, &port);
    CHECK(listen(fd, 1) == 0);
    about(w, "accept fd %d :%d", fd, port);
    accept4(fd, NULL, NULL, SOCK_CLOEXEC);
}
static void recv_tcp(struct wait *w) {
    int port, fd = bound(SOCK_STREAM, INADDR_LOOPBACK, &port);
    char byte;
    CHECK(listen(fd, 1) == 0);
    int peer = to(port, 0);
    about(w, "recv fd %d -> *, connection not accepted yet (127.0.0.1:%d)", peer, port);
    recv(peer, &byte, 1, 0);
}
static void recv_tcp6(struct wait *w) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0), peer = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t len = sizeof at;
    char byte;
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0) {
        about(w, "-"); /* there is no IPv6 here */
        for (;;) pause();
    }
    CHECK(listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    CHECK(connect(peer, (struct sockaddr *)&at, len) == 0);
    about(w, "recv fd %d -> *, connection not accepted yet ([::1]:%d)", peer, ntohs(at.sin6_port));
    recv(peer, &byte, 1, 0);
}
static void recv_udp(struct wait *w) {
    int port, fd = bound(SOCK_DGRAM, INADDR_LOOPBACK, &port);
    struct msghdr msg = {0};
    about(w, "recvmsg fd %d 127.0.0.1:%d", fd, port);
    recvmsg(fd, &msg, 0);
}
static void connect_tcp(struct wait *w) {
    int port, fd = bound(SOCK_STREAM, INADDR_LOOPBACK, &port);
    /* Fills the queue of connections that are never accepted: then a connect hangs. */
    CHECK(listen(fd, 0) == 0);
    for (int n = 0; n < 16; n++) {
        struct pollfd p = {to(port, SOCK_NONBLOCK), POLLOUT, 0};
        if (poll(&p, 1, 300) == 0) break;
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int peer = socket(AF_INET, SOCK_STREAM, 0);
    about(w, "connect fd %d -> *, 1 connection not accepted yet (127.0.0.1:%d)", peer, port);
    connect(peer, (struct sockaddr *)&at, sizeof at);
}
static struct sockaddr_un unix_at(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, socket_path);
    return at;
}
static int unix_listener;
static void accept_unix(struct wait *w) {
    about(w, "accept fd %d %s", unix_listener, socket_path);
    accept(unix_listener, NULL, NULL);
}
/* Both ends of one connection, made before the thread that accepts more. */
static int unix_near, unix_far;
static void recv_unix(struct wait *w) {
    char byte;
    about(w, "recv fd %d -> %s", unix_near, socket_path);
    recv(unix_near, &byte, 1, 0);
}
static void read_unix(struct wait *w) {
    char byte;
    about(w, "read fd %d %s", unix_far, socket_path);
    CHECK(read(unix_far, &byte, 1) >= 0);
}
static void read_pair(struct wait *w) {
    int fds[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    about(w, "read fd %d unix socket", fds[0]);
    CHECK(read(fds[0], &byte, 1) >= 0);
}

/* Pipes and files. */

static int pipe_of(int end) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    return fds[end];
}
static void read_pipe(struct wait *w) {
    char byte;
    int fd = pipe_of(0);
    about(w, "read fd %d pipe <- *, the process itself", fd);
    CHECK(read(fd, &byte, 1) >= 0);
}
static void write_pipe(struct wait *w) {
    static char much[1 << 20];
    int fd = pipe_of(1);
    about(w, "write fd %d pipe -> *, the process itself", fd);
    CHECK(write(fd, much, sizeof much) >= 0);
}
static void read_eventfd(struct wait *w) {
    eventfd_t value;
    int fd = eventfd(0, 0);
    about(w, "read fd %d eventfd", fd);
    eventfd_read(fd, &value);
}
static void flock_file(struct wait *w) {
    int mine = open(file_path, O_RDWR), fd = open(file_path, O_RDWR);
    CHECK(mine >= 0 && flock(mine, LOCK_EX) == 0);
    about(w, "flock fd %d %s, held by process *", fd, file_path);
    flock(fd, LOCK_EX);
}
static void fcntl_file(struct wait *w) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int mine = open(file_path, O_RDWR), fd = open(file_path, O_RDWR);
    CHECK(mine >= 0 && fcntl(mine, F_OFD_SETLK, &lock) == 0);
    about(w, "fcntl fd %d %s", fd, file_path);
    fcntl(fd, F_OFD_SETLKW, &lock);
}

/* Many descriptors. */

static void epoll_many(struct wait *w) {
    int set = epoll_create1(0);
    for (int n = 0; n < 12; n++) {
        struct epoll_event event = {.events = EPOLLIN};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipe_of(0), &event) == 0);
    }
    struct epoll_event event;
    about(w, "epoll fd %d (12 descriptors)", set);
    epoll_wait(set, &event, 1, -1);
}
static void poll_one(struct wait *w) {
    struct pollfd p = {pipe_of(0), POLLIN, 0};
    about(w, "poll fd %d pipe <- *, the process itself", p.fd);
    poll(&p, 1, -1);
}
static void poll_many(struct wait *w) {
    struct pollfd p[6];
    for (int n = 0; n < 6; n++) p[n] = (struct pollfd){n == 1 ? eventfd(0, 0) : pipe_of(0), POLLIN, 0};
    about(w, "poll 6 descriptors: fd %d pipe, fd %d eventfd, fd %d pipe, fd %d pipe, ...", p[0].fd, p[1].fd, p[2].fd,
          p[3].fd);
    ppoll(p, 6, NULL, NULL);
}
static void select_two(struct wait *w) {
    int one = pipe_of(0), two = eventfd(0, 0), more = one > two ? one : two;
    fd_set in, except;
    FD_ZERO(&in);
    FD_ZERO(&except);
    FD_SET(one, &in);
    FD_SET(two, &except);
    about(w, one < two ? "select 2 descriptors: fd %d pipe, fd %d eventfd" : "select 2 descriptors: fd %2$d eventfd, fd %1$d pipe",
          one, two);
    select(more + 1, &in, NULL, &except, NULL);
}

/* Locks. */

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, recursive, robust, inherit, never = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static _Atomic int held;

static void *keeper(void *arg) {
    pthread_setname_np(pthread_self(), "keeper\033[2J");
    pthread_mutex_lock(&plain), pthread_mutex_lock(&recursive), pthread_mutex_lock(&robust);
    pthread_mutex_lock(&inherit), pthread_rwlock_wrlock(&rwlock);
    held = 1;
    for (;;) pause();
    return arg;
}
static void make_locks(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attr);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attr);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherit, &attr);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, keeper, NULL) == 0);
    while (!held) sched_yield();
}
#define HELD "mutex held by keeper[2J"
static void lock_plain(struct wait *w) { about(w, HELD); pthread_mutex_lock(&plain); }
static void lock_recursive(struct wait *w) { about(w, HELD); pthread_mutex_lock(&recursive); }
static void lock_robust(struct wait *w) { about(w, HELD); CHECK(pthread_mutex_lock(&robust) == 0); }
static void lock_inherit(struct wait *w) { about(w, HELD); pthread_mutex_lock(&inherit); }
static void lock_timed(struct wait *w) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 100000;
    about(w, HELD);
    pthread_mutex_timedlock(&plain, &until);
}
static void lock_read(struct wait *w) { about(w, "rwlock 0x*"); pthread_rwlock_rdlock(&rwlock); }
static void wait_cond(struct wait *w) {
    pthread_mutex_lock(&never);
    about(w, "futex 0x*");
    pthread_cond_wait(&cond, &never);
}

/* Time, children, and the rest. */

static void sleep_whole(struct wait *w) {
    struct timespec t = {100000, 0};
    about(w, "sleep 100000 s");
    nanosleep(&t, NULL);
}
static void sleep_until(struct wait *w) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 100000;
    about(w, "sleep 99* s more");
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}
static void sleep_in_poll(struct wait *w) {
    about(w, "sleep 100000 s");
    poll(NULL, 0, 100000000);
}
static void sleep_in_select(struct wait *w) {
    struct timeval t = {100000, 0};
    about(w, "sleep 100000 s");
    select(0, NULL, NULL, NULL, &t);
}
static pid_t child;
static void wait_child(struct wait *w) {
    about(w, "wait4 child *, in pause");
    waitpid(child, NULL, 0);
}
static void wait_any(struct wait *w) {
    siginfo_t info;
    about(w, "waitid any child: *, in pause");
    waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
}
static void wait_signal(struct wait *w) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    about(w, "sigtimedwait");
    sigwaitinfo(&set, NULL);
}
static void wait_aio(struct wait *w) {
    aio_context_t context = 0;
    struct io_event event;
    CHECK(syscall(SYS_io_setup, 1, &context) == 0);
    about(w, "io_getevents");
    syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
}

static struct wait waits[] = {
    {"accept-one", accept_one, "poll", SYS_accept, "", 0},
    {"accept-any", accept_any, "poll", SYS_accept4, "", 0},
    {"recv-tcp", recv_tcp, "io", SYS_recvfrom, "", 0},
    {"recv-tcp6", recv_tcp6, "io", SYS_recvfrom, "", 0},
    {"recv-udp", recv_udp, "io", SYS_recvmsg, "", 0},
    {"connect-tcp", connect_tcp, "io", SYS_connect, "", 0},
    {"accept-unix", accept_unix, "poll", SYS_accept, "", 0},
    {"recv-unix", recv_unix, "io", SYS_recvfrom, "", 0},
    {"read-unix", read_unix, "io", SYS_read, "", 0},
    {"read-pair", read_pair, "io", SYS_read, "", 0},
    {"read-pipe", read_pipe, "io", SYS_read, "", 0},
    {"write-pipe", write_pipe, "io", SYS_write, "", 0},
    {"read-eventfd", read_eventfd, "io", SYS_read, "", 0},
    {"flock-file", flock_file, "wait", SYS_flock, "", 0},
    {"fcntl-file", fcntl_file, "wait", SYS_fcntl, "", 0},
    {"epoll-many", epoll_many, "poll", SYS_epoll_wait, "", 0},
    {"poll-one", poll_one, "io", SYS_poll, "", 0},
    {"poll-many", poll_many, "poll", SYS_ppoll, "", 0},
    {"select-two", select_two, "poll", -1, "", 0},
    {"lock-plain", lock_plain, "lock", SYS_futex, "", 0},
    {"lock-recursive", lock_recursive, "lock", SYS_futex, "", 0},
    {"lock-robust", lock_robust, "lock", SYS_futex, "", 0},
    {"lock-inherit", lock_inherit, "lock", SYS_futex, "", 0},
    {"lock-timed", lock_timed, "lock", SYS_futex, "", 0},
    {"lock-read", lock_read, "lock", SYS_futex, "", 0},
    {"wait-cond", wait_cond, "wait", SYS_futex, "", 0},
    {"sleep-whole", sleep_whole, "sleep", -1, "", 0},
    {"sleep-until", sleep_until, "sleep", SYS_clock_nanosleep, "", 0},
    {"sleep-in-poll", sleep_in_poll, "sleep", SYS_poll, "", 0},
    {"sleep-in-select", sleep_in_select, "sleep", -1, "", 0},
    {"wait-child", wait_child, "wait", SYS_wait4, "", 0},
    {"wait-any", wait_any, "wait", SYS_waitid, "", 0},
    {"wait-signal", wait_signal, "wait", SYS_rt_sigtimedwait, "", 0},
    {"wait-aio", wait_aio, "io", SYS_io_getevents, "", 0},
};
#define COUNT (sizeof waits / sizeof *waits)

static void *run(void *arg) {
    struct wait *w = arg;
    pthread_setname_np(pthread_self(), w->name);
    w->fall(w);
    fprintf(stderr, "waits.c: %s did not wait: %s\n", w->name, strerror(errno));
    exit(1);
}

/* Blocked in its call; where glibc decides which call that is, in any but those that make things. */
static int is_there(const struct wait *w) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", w->tid);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file));
    fclose(file);
    if (strncmp(line, "running", 7) == 0 || atoi(line) < 0) return 0;
    return w->call < 0 || atoi(line) == w->call || w->text[0] == '-';
}

static void loopback_up(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = {.ifr_name = "lo"};
    CHECK(ioctl(fd, SIOCGIFFLAGS, &request) == 0);
    request.ifr_flags |= IFF_UP;
    CHECK(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
    close(fd);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    if (argc > 2 && strcmp(argv[2], "up") == 0) loopback_up();
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    snprintf(file_path, sizeof file_path, "%s/file", argv[1]);
    CHECK(open(file_path, O_RDWR | O_CREAT, 0600) >= 0);
    snprintf(socket_path, sizeof socket_path, "%s.sock", file_path);
    struct sockaddr_un at = unix_at();
    unix_listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(unix_listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(unix_listener, 4) == 0);
    unix_near = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(unix_near, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK((unix_far = accept(unix_listener, NULL, NULL)) >= 0);
    make_locks();
    for (size_t n = 0; n < COUNT; n++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, run, &waits[n]) == 0);
    }
    for (size_t n = 0; n < COUNT; n++)
        while (waits[n].tid == 0 || !is_there(&waits[n])) usleep(1000);
    puts("ready");
    for (size_t n = 0; n < COUNT; n++) printf("%s %s %s\n", waits[n].name, waits[n].state, waits[n].text);
    puts("end");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) != 0) {}
    return 0;
}
