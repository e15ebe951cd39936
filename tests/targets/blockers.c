/* One thread in each kind of wait whose holder can be read from the process's memory or from the kernel, and in waits that
 * look alike and have no known holder. Prints "ready" when all of them wait, then a line "NAME TID KIND OBJECT HOLDER" for
 * each, and "end". KIND is "none" where no blocker may be reported. HOLDER is "thread:PID:TID", "readers:N" or "unknown".
 * Ids are those of the program's own PID namespace. The argument is a folder for its files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "blockers.c:%d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } } while (0)

static const char *folder;
/* Far in the future, on each clock. */
static const struct timespec never = {4000000000, 0};

static void sleep_forever(void) {
    for (;;) pause();
}

/* A thread that runs one function; the starter continues once the thread says so. */
struct thread {
    void *(*run)(void *);
    void *object;
    int arg;
    pthread_t id;
    _Atomic int tid;
    _Atomic bool holds;
};

static void *enter(void *arg) {
    struct thread *t = arg;
    t->tid = gettid();
    return t->run(t);
}

static struct thread *start(void *(*run)(void *), void *object, int arg) {
    struct thread *t = calloc(1, sizeof *t);
    t->run = run, t->object = object, t->arg = arg;
    CHECK(pthread_create(&t->id, NULL, enter, t) == 0);
    while (t->tid == 0) usleep(100);
    return t;
}

static struct thread *start_holder(void *(*run)(void *), void *object) {
    struct thread *t = start(run, object, 0);
    while (!t->holds) usleep(100);
    return t;
}

/* Waits until the thread stays in the system call. */
static void settle(int pid, int tid, int call) {
    char path[80], now[300], last[300] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, tid);
    for (int same = 0; same < 3;) {
        usleep(2000);
        int fd = open(path, O_RDONLY);
        ssize_t n = fd < 0 ? -1 : read(fd, now, sizeof now - 1);
        if (fd >= 0) close(fd);
        now[n < 0 ? 0 : n] = 0;
        same = n > 0 && now[0] != 'r' && atoi(now) == call && strcmp(now, last) == 0 ? same + 1 : 0;
        strcpy(last, now);
    }
}

/* The lines that are printed at the end. */
static char lines[400][160];
static int line_count;

static void expect(const char *name, int tid, const char *format, ...) {
    va_list args;
    int n = snprintf(lines[line_count], sizeof lines[0], "%s %d ", name, tid);
    va_start(args, format);
    vsnprintf(lines[line_count] + n, sizeof lines[0] - n, format, args);
    va_end(args);
    line_count++;
}

static void wait_there(const char *name, struct thread *t, const char *format, ...) {
    va_list args;
    char text[100];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    settle(getpid(), t->tid, SYS_futex);
    expect(name, t->tid, "%s", text);
}

static void *shared_page(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return page;
}

/* Mutexes. */

static void *hold_mutex(void *arg) {
    struct thread *t = arg;
    CHECK(pthread_mutex_lock(t->object) == 0);
    t->holds = true;
    sleep_forever();
    return NULL;
}
static void *lock_mutex(void *arg) {
    struct thread *t = arg;
    if (t->arg == 0) pthread_mutex_lock(t->object);
    if (t->arg == 1) pthread_mutex_timedlock(t->object, &never);
    if (t->arg == 2) pthread_mutex_clocklock(t->object, CLOCK_MONOTONIC, &never);
    sleep_forever();
    return NULL;
}

static pthread_mutex_t *new_mutex(int type, int robust, int protocol, int shared, bool at_page_start) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, type);
    pthread_mutexattr_setrobust(&attr, robust);
    pthread_mutexattr_setprotocol(&attr, protocol);
    pthread_mutexattr_setpshared(&attr, shared);
    pthread_mutex_t *mutex = shared || at_page_start ? shared_page() : malloc(sizeof *mutex);
    memset(mutex, 0x5a, sizeof *mutex);
    CHECK(pthread_mutex_init(mutex, &attr) == 0);
    return mutex;
}

/* One mutex with an owner, waited for by the three functions that lock. */
static void mutex_waits(const char *kind, pthread_mutex_t *mutex) {
    char name[40];
    struct thread *owner = start_holder(hold_mutex, mutex);
    const char *how[] = {"", "-timed", "-clock"};
    for (int n = 0; n < 3; n++) {
        snprintf(name, sizeof name, "mutex-%s%s", kind, how[n]);
        wait_there(name, start(lock_mutex, mutex, n), "mutex %p thread:%d:%d", (void *)mutex, getpid(), owner->tid);
    }
}

static void *lock_twice(void *arg) {
    struct thread *t = arg;
    pthread_mutex_lock(t->object);
    pthread_mutex_lock(t->object);
    return NULL;
}
static void *lock_recursive(void *arg) {
    struct thread *t = arg;
    pthread_mutex_lock(t->object);
    pthread_mutex_lock(t->object);
    t->holds = true;
    sleep_forever();
    return NULL;
}
static pthread_cond_t side_cond = PTHREAD_COND_INITIALIZER;
static void *wait_side(void *arg) {
    struct thread *t = arg;
    pthread_mutex_lock(t->object);
    pthread_cond_wait(&side_cond, t->object);
    return NULL;
}
static void *lock_c11(void *arg) {
    struct thread *t = arg;
    mtx_lock(t->object);
    return NULL;
}
/* A mutex that a thread of another process holds. */
static int child_with_lock(void *object, bool rwlock, bool in_thread) {
    _Atomic int *tid = shared_page();
    int pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (in_thread) {
            *tid = start_holder(hold_mutex, object)->tid;
        } else {
            CHECK((rwlock ? pthread_rwlock_wrlock(object) : pthread_mutex_lock(object)) == 0);
            *tid = getpid();
        }
        sleep_forever();
    }
    while (*tid == 0) usleep(100);
    return pid;
}

static void mutexes(void) {
    struct { const char *name; int type; } types[] = {
        {"normal", PTHREAD_MUTEX_NORMAL}, {"recursive", PTHREAD_MUTEX_RECURSIVE},
        {"errorcheck", PTHREAD_MUTEX_ERRORCHECK}, {"adaptive", PTHREAD_MUTEX_ADAPTIVE_NP}};
    struct { const char *name; int robust, protocol, shared; } flags[] = {
        {"", 0, PTHREAD_PRIO_NONE, 0},
        {"-pi", 0, PTHREAD_PRIO_INHERIT, 0},
        {"-robust", PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0},
        {"-robust-pi", PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_INHERIT, 0},
        {"-shared", 0, PTHREAD_PRIO_NONE, 1},
        {"-shared-pi", 0, PTHREAD_PRIO_INHERIT, 1},
        {"-shared-robust", PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 1},
        {"-shared-robust-pi", PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_INHERIT, 1}};
    char name[40];
    for (int t = 0; t < 4; t++)
        for (int f = 0; f < 8; f++) {
            snprintf(name, sizeof name, "%s%s", types[t].name, flags[f].name);
            mutex_waits(name, new_mutex(types[t].type, flags[f].robust, flags[f].protocol, flags[f].shared, false));
        }
}

static void more_mutexes(void) {
    static pthread_mutex_t initialized = PTHREAD_MUTEX_INITIALIZER;
    mutex_waits("static", &initialized);
    mutex_waits("page-start", new_mutex(PTHREAD_MUTEX_NORMAL, 0, 0, 0, true));
    char *page = shared_page();
    pthread_mutex_t *last = (pthread_mutex_t *)(page + 4096 - sizeof *last);
    CHECK(pthread_mutex_init(last, NULL) == 0);
    mutex_waits("page-end", last);

    pthread_mutex_t *own = new_mutex(PTHREAD_MUTEX_NORMAL, 0, 0, 0, false);
    struct thread *self = start(lock_twice, own, 0);
    wait_there("mutex-self", self, "mutex %p thread:%d:%d", (void *)own, getpid(), self->tid);

    pthread_mutex_t *twice = new_mutex(PTHREAD_MUTEX_RECURSIVE, 0, 0, 0, false);
    struct thread *owner = start_holder(lock_recursive, twice);
    wait_there("mutex-twice", start(lock_mutex, twice, 0), "mutex %p thread:%d:%d", (void *)twice, getpid(), owner->tid);

    /* Its users include a thread that waits for a condition. */
    pthread_mutex_t *used = new_mutex(PTHREAD_MUTEX_DEFAULT, 0, 0, 0, false);
    wait_there("cond-side", start(wait_side, used, 0), "none");
    owner = start_holder(hold_mutex, used);
    wait_there("mutex-used", start(lock_mutex, used, 0), "mutex %p thread:%d:%d", (void *)used, getpid(), owner->tid);

    static mtx_t c11;
    mtx_init(&c11, mtx_plain);
    owner = start_holder(hold_mutex, &c11);
    wait_there("mutex-c11", start(lock_c11, &c11, 0), "mutex %p thread:%d:%d", (void *)&c11, getpid(), owner->tid);

    struct { const char *name; int robust, protocol; } kinds[] = {
        {"plain", 0, 0}, {"robust", PTHREAD_MUTEX_ROBUST, 0}, {"pi", 0, PTHREAD_PRIO_INHERIT}};
    char name[40];
    for (int n = 0; n < 3; n++) {
        pthread_mutex_t *mutex = new_mutex(PTHREAD_MUTEX_NORMAL, kinds[n].robust, kinds[n].protocol, 1, false);
        int pid = child_with_lock(mutex, false, false);
        snprintf(name, sizeof name, "mutex-process-%s", kinds[n].name);
        wait_there(name, start(lock_mutex, mutex, 0), "mutex %p thread:%d:%d", (void *)mutex, pid, pid);
        mutex = new_mutex(PTHREAD_MUTEX_NORMAL, kinds[n].robust, kinds[n].protocol, 1, false);
        child_with_lock(mutex, false, true);
        snprintf(name, sizeof name, "mutex-process-thread-%s", kinds[n].name);
        wait_there(name, start(lock_mutex, mutex, 0), "mutex %p unknown", (void *)mutex);
    }
}

/* Reader-writer locks. */

static void *hold_read(void *arg) {
    struct thread *t = arg;
    CHECK(pthread_rwlock_rdlock(t->object) == 0);
    t->holds = true;
    sleep_forever();
    return NULL;
}
static void *hold_write(void *arg) {
    struct thread *t = arg;
    CHECK(pthread_rwlock_wrlock(t->object) == 0);
    t->holds = true;
    sleep_forever();
    return NULL;
}
static void *lock_read(void *arg) {
    struct thread *t = arg;
    if (t->arg == 0) pthread_rwlock_rdlock(t->object);
    else pthread_rwlock_timedrdlock(t->object, &never);
    return NULL;
}
static void *lock_write(void *arg) {
    struct thread *t = arg;
    if (t->arg == 0) pthread_rwlock_wrlock(t->object);
    else pthread_rwlock_clockwrlock(t->object, CLOCK_MONOTONIC, &never);
    return NULL;
}
static void rwlocks(void) {
    const char *kinds[] = {"readers", "writers", "nonrecursive"};
    char name[60];
    for (int kind = 0; kind < 3; kind++)
        for (int shared = 0; shared < 2; shared++) {
            pthread_rwlockattr_t attr;
            pthread_rwlockattr_init(&attr);
            pthread_rwlockattr_setkind_np(&attr, kind);
            pthread_rwlockattr_setpshared(&attr, shared);
            pthread_rwlock_t *written = shared ? shared_page() : malloc(sizeof *written);
            CHECK(pthread_rwlock_init(written, &attr) == 0);
            struct thread *writer = start_holder(hold_write, written);
            for (int n = 0; n < 4; n++) {
                snprintf(name, sizeof name, "rwlock-%s-%d-written-%d", kinds[kind], shared, n);
                struct thread *t = start(n % 2 == 0 ? lock_read : lock_write, written, n / 2);
                wait_there(name, t, "rwlock %p thread:%d:%d", (void *)written, getpid(), writer->tid);
            }
            pthread_rwlock_t *read = shared ? shared_page() : malloc(sizeof *read);
            CHECK(pthread_rwlock_init(read, &attr) == 0);
            for (int n = 0; n < 3; n++) start_holder(hold_read, read);
            for (int n = 0; n < 3; n++) {
                snprintf(name, sizeof name, "rwlock-%s-%d-read-%d", kinds[kind], shared, n);
                wait_there(name, start(lock_write, read, n == 0), "rwlock %p readers:3", (void *)read);
            }
            /* New readers wait behind a writer. */
            if (kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)
                for (int n = 0; n < 2; n++) {
                    snprintf(name, sizeof name, "rwlock-%s-%d-behind-%d", kinds[kind], shared, n);
                    wait_there(name, start(lock_read, read, n), "rwlock %p readers:3", (void *)read);
                }
        }
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_t *lock = shared_page();
    CHECK(pthread_rwlock_init(lock, &attr) == 0);
    int pid = child_with_lock(lock, true, false);
    wait_there("rwlock-process-read", start(lock_read, lock, 0), "rwlock %p thread:%d:%d", (void *)lock, pid, pid);
    wait_there("rwlock-process-write", start(lock_write, lock, 0), "rwlock %p thread:%d:%d", (void *)lock, pid, pid);
}

/* Ends of threads. */

static void *just_sleep(void *arg) {
    (void)arg;
    sleep_forever();
    return NULL;
}
static void *join(void *arg) {
    struct thread *t = arg;
    struct thread *other = t->object;
    if (t->arg == 0) pthread_join(other->id, NULL);
    if (t->arg == 1) pthread_timedjoin_np(other->id, NULL, &never);
    if (t->arg == 2) thrd_join(other->id, NULL);
    return NULL;
}
static void joins(void) {
    const char *how[] = {"join", "join-timed", "join-c11"};
    for (int n = 0; n < 3; n++) {
        struct thread *joined = start(just_sleep, NULL, 0);
        /* The thread id lies in the thread's descriptor, whose address is the pthread_t. */
        wait_there(how[n], start(join, joined, n), "thread-end %#lx thread:%d:%d", joined->id + 0x2d0, getpid(), joined->tid);
    }
}

/* Locks of files. */

static int open_new(const char *name, unsigned long *inode) {
    char path[200];
    struct stat stat;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && fstat(fd, &stat) == 0);
    *inode = stat.st_ino;
    return fd;
}
struct range { short type; int command, start; };
static bool lock_range(int fd, struct range range) {
    struct flock lock = {.l_type = range.type, .l_whence = SEEK_SET, .l_start = range.start, .l_len = 10};
    return fcntl(fd, range.command, &lock) == 0;
}
static void *wait_flock(void *arg) {
    struct thread *t = arg;
    flock(*(int *)t->object, t->arg);
    return NULL;
}
static void *wait_range(void *arg) {
    struct thread *t = arg;
    lock_range(*(int *)t->object, (struct range){F_WRLCK, t->arg, 0});
    return NULL;
}
static int child_with_file(void (*lock)(const char *), const char *name) {
    _Atomic bool *holds = shared_page();
    int pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        lock(name);
        *holds = true;
        sleep_forever();
    }
    while (!*holds) usleep(100);
    return pid;
}
static void flock_file(const char *name) {
    unsigned long inode;
    CHECK(flock(open_new(name, &inode), LOCK_EX) == 0);
}
static void range_file(const char *name) {
    unsigned long inode;
    CHECK(lock_range(open_new(name, &inode), (struct range){F_WRLCK, F_SETLK, 0}));
}
static void ofd_file(const char *name) {
    unsigned long inode;
    CHECK(lock_range(open_new(name, &inode), (struct range){F_WRLCK, F_OFD_SETLK, 0}));
}
static void files(void) {
    unsigned long inode;
    int *fd = malloc(sizeof *fd);
    int pid = child_with_file(flock_file, "flock");
    *fd = open_new("flock", &inode);
    struct thread *t = start(wait_flock, fd, LOCK_SH);
    settle(getpid(), t->tid, SYS_flock);
    expect("flock-shared", t->tid, "file-lock %lu thread:%d:%d", inode, pid, pid);
    t = start(wait_flock, fd, LOCK_EX);
    settle(getpid(), t->tid, SYS_flock);
    expect("flock-exclusive", t->tid, "file-lock %lu thread:%d:%d", inode, pid, pid);

    fd = malloc(sizeof *fd);
    pid = child_with_file(range_file, "range");
    *fd = open_new("range", &inode);
    t = start(wait_range, fd, F_SETLKW);
    settle(getpid(), t->tid, SYS_fcntl);
    expect("range", t->tid, "file-lock %lu thread:%d:%d", inode, pid, pid);
    t = start(wait_range, fd, F_OFD_SETLKW);
    settle(getpid(), t->tid, SYS_fcntl);
    expect("range-ofd", t->tid, "file-lock %lu thread:%d:%d", inode, pid, pid);

    /* The kernel does not tell who holds a lock of an open file description. */
    fd = malloc(sizeof *fd);
    child_with_file(ofd_file, "ofd");
    *fd = open_new("ofd", &inode);
    t = start(wait_range, fd, F_SETLKW);
    settle(getpid(), t->tid, SYS_fcntl);
    expect("ofd", t->tid, "file-lock %lu unknown", inode);
}

/* Children. */

static void *wait_child(void *arg) {
    struct thread *t = arg;
    int status;
    siginfo_t info;
    int pid = t->object ? *(int *)t->object : 0;
    if (t->arg == 0) waitpid(pid, &status, 0);
    if (t->arg == 1) waitid(P_PID, pid, &info, WEXITED);
    if (t->arg == 2) waitpid(-1, &status, 0);
    if (t->arg == 3) waitid(P_ALL, 0, &info, WEXITED);
    sleep_forever();
    return NULL;
}
static void children(void) {
    static int pid;
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sleep_forever();
    }
    const char *how[] = {"child-waitpid", "child-waitid", "child-any", "child-any-waitid"};
    for (int n = 0; n < 4; n++) {
        struct thread *t = start(wait_child, &pid, n);
        settle(getpid(), t->tid, n % 2 == 0 ? SYS_wait4 : SYS_waitid);
        if (n < 2) expect(how[n], t->tid, "child %d thread:%d:%d", pid, pid, pid);
        else expect(how[n], t->tid, "child 0 unknown");
    }
}

/* Waits without a holder. */

/* Words behind the one that is waited for look like the rest of a locked mutex. */
struct condition { pthread_cond_t cond; pthread_mutex_t mutex; };
static struct condition conditions[3];
static void *wait_cond(void *arg) {
    struct thread *t = arg;
    struct condition *c = t->object;
    pthread_mutex_lock(&c->mutex);
    if (t->arg == 0) pthread_cond_wait(&c->cond, &c->mutex);
    else pthread_cond_timedwait(&c->cond, &c->mutex, &never);
    pthread_mutex_unlock(&c->mutex);
    sleep_forever();
    return NULL;
}
static void *wait_sem(void *arg) {
    struct thread *t = arg;
    if (t->arg == 0) sem_wait(t->object);
    else sem_timedwait(t->object, &never);
    return NULL;
}
static void *wait_barrier(void *arg) {
    struct thread *t = arg;
    pthread_barrier_wait(t->object);
    sleep_forever();
    return NULL;
}
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool in_once;
static void never_done(void) {
    in_once = true;
    sleep_forever();
}
static void *wait_once(void *arg) {
    (void)arg;
    pthread_once(&once, never_done);
    return NULL;
}
/* FUTEX_WAIT with any word, as locks of other libraries use it. */
struct words { int operation; unsigned before[4], word[16]; };
static void *wait_word(void *arg) {
    struct thread *t = arg;
    struct words *w = t->object;
    syscall(SYS_futex, w->word, w->operation, w->word[0], t->arg ? &never : NULL, NULL, ~0u);
    return NULL;
}
static void without_holder(void) {
    char name[40];
    for (int n = 0; n < 3; n++) {
        struct condition *c = &conditions[n];
        pthread_mutex_init(&c->mutex, NULL), pthread_cond_init(&c->cond, NULL);
        /* Several generations of signals, and a mutex behind the condition that is held. */
        for (int k = 0; k < 4; k++) {
            struct thread *t = start(wait_cond, c, n % 2);
            settle(getpid(), t->tid, SYS_futex);
            snprintf(name, sizeof name, "cond-%d-%d", n, k);
            if (k >= n) expect(name, t->tid, "none");
            else pthread_cond_signal(&c->cond), settle(getpid(), t->tid, SYS_pause);
        }
        start_holder(hold_mutex, &c->mutex);
    }
    static sem_t sem;
    sem_init(&sem, 0, 0);
    wait_there("sem", start(wait_sem, &sem, 0), "none");
    wait_there("sem-timed", start(wait_sem, &sem, 1), "none");
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 3);
    wait_there("barrier", start(wait_barrier, &barrier, 0), "none");
    wait_there("barrier-second", start(wait_barrier, &barrier, 0), "none");
    /* After two rounds its word is 2, as in a mutex. */
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    static pthread_barrier_t rounds[2];
    for (int shared = 0; shared < 2; shared++) {
        pthread_barrier_init(&rounds[shared], shared ? &attr : NULL, 2);
        for (int n = 0; n < 2; n++) {
            struct thread *t = start(wait_barrier, &rounds[shared], 0);
            pthread_barrier_wait(&rounds[shared]);
            settle(getpid(), t->tid, SYS_pause);
        }
        snprintf(name, sizeof name, "barrier-used-%d", shared);
        wait_there(name, start(wait_barrier, &rounds[shared], 0), "none");
    }
    start(wait_once, NULL, 0);
    while (!in_once) usleep(100);
    wait_there("once", start(wait_once, NULL, 0), "none");

    unsigned self = gettid();
    struct thread *sleeper = start(just_sleep, NULL, 0);
    struct words words[] = {
        {128, {0}, {2}},                                /* Go, and simple locks of three states */
        {128 | 9, {0}, {2}},                            /* Rust */
        {128, {0}, {2, 1, 1, 1, 0}},                    /* small numbers behind it */
        {128, {0}, {1}},                                /* parking_lot */
        {128 | 9, {0}, {3}}, {128 | 9, {0}, {14}},      /* counts */
        {9, {0}, {0}}, {9, {0}, {0}}, {9, {0}, {0}},    /* a thread id outside of a thread's descriptor */
        {128 | 9, {0}, {2, 0, 0, 1, 0}},                /* Rust, with a thread id where a mutex has its owner */
    };
    for (int n = 6; n < 9; n++) words[n].word[0] = n == 6 ? self : (unsigned)sleeper->tid;
    words[9].word[2] = self;
    for (size_t n = 0; n < sizeof words / sizeof *words; n++)
        for (int timed = 0; timed < 2; timed++) {
            /* With a time limit, the last one is a timed mutex in every word. */
            if (n == 9 && timed) continue;
            struct words *copy = malloc(sizeof *copy);
            *copy = words[n];
            snprintf(name, sizeof name, "word-%zu%s", n, timed ? "-timed" : "");
            wait_there(name, start(wait_word, copy, timed), "none");
        }
    struct thread *t = start(just_sleep, NULL, 0);
    settle(getpid(), t->tid, SYS_pause);
    expect("pause", t->tid, "none");
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    folder = argv[1];
    mutexes();
    more_mutexes();
    rwlocks();
    joins();
    files();
    children();
    without_holder();
    puts("ready");
    for (int n = 0; n < line_count; n++) puts(lines[n]);
    puts("end");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) != 0) {}
    return 0;
}
