// What changes without rest. Functions have names that begin with WHO, so that two builds can be told apart.
// `churn N SECONDS`: after a line N threads, a few at a time, over SECONDS, each of which burns 0.5 ms and adds its CPU
//   time up. Then tells: CPU of these threads, of the leader, of the process since the line, ns.
// `fork`: two threads that fork children and wait for them, one that forks by vfork and executes `true`. After each line: how
//   many there were; after `end` no more.
// `exec COUNT PROGRAM OTHER`: burns a while, naps a while, and executes OTHER, which executes PROGRAM, COUNT times; then stays.
// `load LIBRARY LIBRARY`: a thread that loads one, calls into it, which calls back, unloads it, and so with the other.
// `switch`: two pairs of threads that pass a byte to and fro.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef WHO
#define WHO a
#endif
#define JOIN(who, name) who##_##name
#define NAMED(who, name) JOIN(who, name)
#define OWN(name) __attribute__((noipa, noinline)) NAMED(WHO, name)
#define CALL(name) NAMED(WHO, name)
#define STAY __asm__ volatile("" ::: "memory")

static volatile unsigned long sink;
static atomic_int stopping;
static atomic_long children, spent;

static long clock_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000l + now.tv_nsec;
}

void OWN(burn)(long ns) {
    long end = clock_of(CLOCK_THREAD_CPUTIME_ID) + ns;
    do {
        for (int i = 0; i < 2000; i++) sink++;
    } while (clock_of(CLOCK_THREAD_CPUTIME_ID) < end);
    STAY;
}

void OWN(nap)(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
    STAY;
}

static void *brief(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "brief-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    CALL(burn)(500000);
    spent += clock_of(CLOCK_THREAD_CPUTIME_ID);
    return arg;
}

static void churn(long count, long seconds) {
    enum { AT_ONCE = 4 };
    pthread_t threads[AT_ONCE];
    long process = clock_of(CLOCK_PROCESS_CPUTIME_ID), leader = clock_of(CLOCK_THREAD_CPUTIME_ID);
    long begin = clock_of(CLOCK_MONOTONIC);
    for (long i = 0; i < count + AT_ONCE; i++) {
        if (i >= AT_ONCE) pthread_join(threads[i % AT_ONCE], NULL);
        if (i < count && pthread_create(&threads[i % AT_ONCE], NULL, brief, (void *)i)) exit(3);
        long early = begin + i * (seconds * 1000000000l / count) - clock_of(CLOCK_MONOTONIC);
        if (early > 0) CALL(nap)(early);
    }
    leader = clock_of(CLOCK_THREAD_CPUTIME_ID) - leader;
    printf("%ld\n%ld\n%ld\n", (long)spent, leader, clock_of(CLOCK_PROCESS_CPUTIME_ID) - process);
    fflush(stdout);
}

// In the child only.
void OWN(child)(void) {
    CALL(burn)(1000000);
    _exit(0);
}
void OWN(fork_inner)(int by_vfork) {
    CALL(burn)(300000);
    pid_t child = by_vfork ? vfork() : fork();
    if (child == 0) {
        if (!by_vfork) CALL(child)();
        execl("/bin/true", "true", (char *)0);
        _exit(127);
    }
    if (child > 0 && waitpid(child, NULL, 0) == child) children++;
    STAY;
}
void OWN(fork_outer)(int by_vfork) {
    CALL(fork_inner)(by_vfork);
    STAY;
}
void *OWN(fork_thread)(void *arg) {
    pthread_setname_np(pthread_self(), arg ? "vforks" : "forks");
    while (!stopping) CALL(fork_outer)(arg != NULL);
    pause();
    return arg;
}

void OWN(exec_inner)(void) {
    CALL(burn)(8000000);
    CALL(nap)(8000000);
    STAY;
}
void OWN(exec_outer)(void) {
    CALL(exec_inner)();
    STAY;
}

void OWN(back)(void) {
    CALL(burn)(1000000);
    CALL(nap)(1000000);
    STAY;
}
void OWN(load)(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) exit(4);
    ((void (*)(void (*)(void)))dlsym(library, "library_entry"))(CALL(back));
    dlclose(library);
    STAY;
}
static char **arguments;
void *OWN(load_thread)(void *arg) {
    pthread_setname_np(pthread_self(), "loads");
    for (long n = 0; !stopping; n++) CALL(load)(arguments[2 + n % 2]);
    pause();
    return arg;
}

static int pipes[4][2];
void OWN(pass)(int from, int to) {
    char byte;
    if (read(from, &byte, 1) == 1 && write(to, &byte, 1) == 1) sink++;
    STAY;
}
void *OWN(switch_thread)(void *arg) {
    long n = (long)arg;
    pthread_setname_np(pthread_self(), "switches");
    for (;;) CALL(pass)(pipes[n][0], pipes[n ^ 1][1]);
    return arg;
}

static void start(void *(*work)(void *), long n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void *)n)) exit(3);
}

int main(int argc, char **argv) {
    char line[16];
    arguments = argv;
    if (argc < 2) return 2;
    setvbuf(stdin, NULL, _IONBF, 0);
    if (!strcmp(argv[1], "exec")) {
        long count = atol(argv[2]);
        char left[16];
        if (count == 0 || getenv("STORM_READY") == NULL) {
            puts("ready");
            fflush(stdout);
            setenv("STORM_READY", "1", 1);
            if (!fgets(line, sizeof line, stdin) || count == 0) return 0;
        }
        CALL(exec_outer)();
        snprintf(left, sizeof left, "%d", (int)count - 1);
        char *next[] = {argv[4], argv[1], left, argv[4], argv[3], NULL};
        execv(argv[4], next);
        return 5;
    }
    if (!strcmp(argv[1], "fork"))
        for (int i = 0; i < 3; i++) start(CALL(fork_thread), i == 2);
    for (long i = 0; i < 4 && !strcmp(argv[1], "switch"); i++)
        if (pipe(pipes[i])) return 6;
    for (long i = 0; i < 4 && !strcmp(argv[1], "switch"); i++) {
        start(CALL(switch_thread), i);
        if (i % 2 && write(pipes[i][1], "", 1) != 1) return 6;
    }
    if (!strcmp(argv[1], "load")) start(CALL(load_thread), 0);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 0;
    while (!strcmp(argv[1], "fork") && strcmp(line, "end\n")) {
        printf("%ld\n", (long)children);
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 0;
    }
    if (!strcmp(argv[1], "churn")) churn(atol(argv[2]), atol(argv[3]));
    stopping = 1;
    while (fgets(line, sizeof line, stdin)) STAY;
    return 0;
}
