// Threads of C programs. Names of threads say the truth: `rest-` waits for work, `job-` waits
// inside a job.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int done;
typedef void (*job_t)(void);

// A queue as in many servers: a ring, a mutex, a condition.
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    job_t jobs[64];
    unsigned head, tail;
};
#define QUEUE {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0}

static job_t queue_get(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    while (q->head == q->tail) pthread_cond_wait(&q->filled, &q->lock);
    job_t job = q->jobs[q->tail++ % 64];
    pthread_mutex_unlock(&q->lock);
    return job;
}
static void queue_put(struct queue *q, job_t job) {
    pthread_mutex_lock(&q->lock);
    q->jobs[q->head++ % 64] = job;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

static const char *job_name;
static pthread_mutex_t answer_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t permits;
static struct queue replies = QUEUE;

static atomic_int begun;
static void begin_job(void) {
    prctl(PR_SET_NAME, job_name);
    begun++;
}
static void lookup(void) {
    begin_job();
    pthread_mutex_lock(&answer_lock);
    for (;;) pthread_cond_wait(&answered, &answer_lock);
}
static void throttle(void) { begin_job(); sem_wait(&permits); done = 1; }
static void call_backend(void) { begin_job(); done = queue_get(&replies) != 0; }
static void backoff(void) { begin_job(); sleep(3600); done = 2; }
static void phase(void) { begin_job(); pthread_barrier_wait(&barrier); done = 3; }
static void thumbnail(void) {
    begin_job();
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("sleep", "sleep", "600", (char *)0);
        _exit(127);
    }
    waitpid(child, (int *)&done, 0);
    done = 4;
}
static void *part(void *unused) { lookup(); return unused; }
static void parallel(void) {
    begin_job();
    pthread_t thread;
    pthread_create(&thread, 0, part, 0);
    pthread_join(thread, 0);
    done = 5;
}
static const job_t JOBS[] = {lookup, throttle, call_backend, backoff, phase, thumbnail, parallel};
enum { N_JOBS = sizeof JOBS / sizeof *JOBS };

// Worker with its loop around the condition itself.
static struct queue inline_queue = QUEUE;
static void *conn_worker(void *unused) {
    prctl(PR_SET_NAME, "rest-cworker");
    struct queue *q = &inline_queue;
    for (;;) {
        pthread_mutex_lock(&q->lock);
        while (q->head == q->tail) pthread_cond_wait(&q->filled, &q->lock);
        job_t job = q->jobs[q->tail++ % 64];
        pthread_mutex_unlock(&q->lock);
        job();
        done = 6;
    }
    return unused;
}

// Worker that gets from a queue.
static struct queue calls = QUEUE;
static void *dispatch(void *unused) {
    prctl(PR_SET_NAME, "rest-cdispatch");
    for (;;) {
        queue_get(&calls)();
        done = 7;
    }
    return unused;
}

// Worker with a semaphore that counts jobs.
static struct queue counted = QUEUE;
static sem_t count;
static void *thread_do(void *unused) {
    prctl(PR_SET_NAME, "rest-csem");
    for (;;) {
        sem_wait(&count);
        queue_get(&counted)();
        done = 8;
    }
    return unused;
}

static void *signals(void *unused) {
    prctl(PR_SET_NAME, "rest-csigwait");
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (int signal;;) {
        sigwait(&set, &signal);
        done = signal;
    }
    return unused;
}

// Waits for whichever child ends.
static void *reaper(void *unused) {
    prctl(PR_SET_NAME, "rest-creaper");
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("sleep", "sleep", "600", (char *)0);
        _exit(127);
    }
    for (;;) {
        pid_t child = wait((int *)&done);
        if (child < 0) return unused;
    }
}

static void *acceptor(void *unused) {
    prctl(PR_SET_NAME, "rest-caccept");
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 8)) abort();
    for (;;) done = accept(listener, 0, 0);
    return unused;
}

static void *events(void *unused) {
    prctl(PR_SET_NAME, "rest-cepoll");
    int epoll = epoll_create1(0);
    struct epoll_event event;
    for (;;) done = epoll_wait(epoll, &event, 1, -1);
    return unused;
}

static void *housekeeping(void *unused) {
    prctl(PR_SET_NAME, "rest-csleep");
    for (;;) {
        struct timespec time = {0, 200000000};
        nanosleep(&time, 0);
        done = 9;
    }
    return unused;
}

static void *updater(void *unused) {
    prctl(PR_SET_NAME, "rest-ctimed");
    pthread_mutex_lock(&answer_lock);
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&answered, &answer_lock, &until);
        done = 10;
    }
    return unused;
}

// A thread that is one job.
static void *import_file(void *unused) {
    job_name = "job-cimport";
    lookup();
    return unused;
}

static void start(void *(*body)(void *), int n) {
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, body, 0)) abort();
    }
}

// Lets all jobs of a pool begin before the next pool gets its name.
static void put_all(struct queue *q, const char *name, sem_t *counter) {
    job_name = name;
    begun = 0;
    for (int i = 0; i < N_JOBS; i++) {
        queue_put(q, JOBS[i]);
        if (counter) sem_post(counter);
    }
    // The part of `parallel` counts, too.
    while (begun < N_JOBS + 1) usleep(1000);
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    pthread_barrier_init(&barrier, 0, 100);
    start(conn_worker, N_JOBS + 2);
    put_all(&inline_queue, "job-cworker", 0);
    start(dispatch, N_JOBS + 2);
    put_all(&calls, "job-cdispatch", 0);
    start(thread_do, N_JOBS + 2);
    put_all(&counted, "job-csem", &count);
    start(signals, 1);
    start(reaper, 1);
    start(acceptor, 1);
    start(events, 1);
    start(housekeeping, 1);
    start(updater, 1);
    start(import_file, 1);
    prctl(PR_SET_NAME, "rest-cmain");
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
