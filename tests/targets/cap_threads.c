// `park N`: N threads parked in a read, and two that spin, which tell their CPU time on request.
// `wake N`: N threads parked, each in a read of its own; the one whose number is sent burns 30 ms, tells its CPU time and
// waits again.
// `work N US`: N threads that burn US microseconds and sleep 50 ms, again and again; after a line they end their work, and two
// spin.
// `grow N`: N threads parked in reads; after a line one more, which ends after another line, and so on. `grow N spin`: and one
// that spins.
// `churn`: threads that live, and work, 20 ms, one after the other, beside one that stays; after a line no more, and how many
// there were.
// `zombie`: the leader ends, a thread goes on spinning.
// `vfork`: waits, uninterruptibly, for a child that borrows its memory and is killed or waits 30 s.
// `exec`: runs itself again after each line it is sent, from a thread that is not the leader when the line is `thread`.
// `become PROGRAM`: runs that in its place, after a line.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int never[2];
static volatile unsigned long sink;
static char **args;

static void *park(void *arg) {
    char name[16], byte;
    snprintf(name, sizeof name, "park-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    return read(never[0], &byte, 1) < 0 ? arg : NULL;
}

static void *spin(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "spin-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    for (;;) sink++;
}

static void *brief(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "brief-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    struct timespec now, end, used;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += 20000000;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    do {
        for (int i = 0; i < 1000; i++) sink++;
        clock_gettime(CLOCK_MONOTONIC, &now);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec) ||
             (used.tv_sec == 0 && used.tv_nsec < 20000000));
    return arg;
}

static void *again(void *arg) {
    execv("/proc/self/exe", args);
    return arg;
}

static int bells[1000][2];

static void *wake(void *arg) {
    char name[16], byte;
    snprintf(name, sizeof name, "park-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    while (read(bells[(long)arg][0], &byte, 1) == 1) {
        struct timespec used;
        do {
            for (int i = 0; i < 1000; i++) sink++;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        } while (used.tv_sec == 0 && used.tv_nsec < 30000000);
        printf("%lld\n", used.tv_sec * 1000000000ll + used.tv_nsec);
        fflush(stdout);
    }
    return arg;
}

static void *park_once(void *arg) {
    char name[16], byte;
    snprintf(name, sizeof name, "park-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    return read(bells[0][0], &byte, 1) < 0 ? arg : NULL;
}

static volatile int resting;
static long burn_ns;

static void *work(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "work-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    while (!resting) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do {
            for (int i = 0; i < 1000; i++) sink++;
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - begin.tv_sec) * 1000000000ll + now.tv_nsec - begin.tv_nsec < burn_ns);
        usleep(50000);
    }
    pause();
    return arg;
}

static pthread_t start(void *(*work)(void *), long n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void *)n)) exit(3);
    return thread;
}

static void tell(pthread_t thread) {
    clockid_t clock;
    struct timespec used;
    pthread_getcpuclockid(thread, &clock);
    clock_gettime(clock, &used);
    printf("%lld\n", used.tv_sec * 1000000000ll + used.tv_nsec);
}

int main(int argc, char **argv) {
    char line[64];
    args = argv;
    if (argc < 2 || pipe(never)) return 2;
    // Read a byte at a time: what follows a line is for the program that takes our place.
    setvbuf(stdin, NULL, _IONBF, 0);
    if (!strcmp(argv[1], "park")) {
        pthread_t busy[2];
        for (long i = 0; i < atol(argv[2]); i++) start(park, i);
        for (long i = 0; i < 2; i++) busy[i] = start(spin, i);
        usleep(100000);
        puts("ready");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin)) {
            tell(busy[0]);
            tell(busy[1]);
            fflush(stdout);
        }
    } else if (!strcmp(argv[1], "wake")) {
        for (long i = 0; i < atol(argv[2]) && i < 1000 && !pipe(bells[i]); i++) start(wake, i);
        usleep(100000);
        puts("ready");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin)) {
            if (write(bells[atol(line)][1], line, 1) != 1) return 4;
        }
    } else if (!strcmp(argv[1], "work")) {
        burn_ns = atol(argv[3]) * 1000;
        for (long i = 0; i < atol(argv[2]); i++) start(work, i);
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 0;
        resting = 1;
        for (long i = 0; i < 2; i++) start(spin, i);
        pause();
    } else if (!strcmp(argv[1], "grow")) {
        for (long i = 0; i < atol(argv[2]); i++) start(park, i);
        if (argc > 3) start(spin, 0);
        usleep(100000);
        puts("ready");
        fflush(stdout);
        if (pipe(bells[0])) return 4;
        while (fgets(line, sizeof line, stdin)) {
            pthread_t last = start(park_once, atol(argv[2]));
            usleep(100000);
            puts("1");
            fflush(stdout);
            if (!fgets(line, sizeof line, stdin) || write(bells[0][1], line, 1) != 1) return 4;
            pthread_join(last, NULL);
            puts("2");
            fflush(stdout);
        }
    } else if (!strcmp(argv[1], "churn")) {
        start(park, 0);
        puts("ready");
        fflush(stdout);
        struct pollfd told = {0, POLLIN, 0};
        long born = 0;
        for (; poll(&told, 1, 0) == 0; born++) pthread_join(start(brief, born), NULL);
        printf("%ld\n", born);
        fflush(stdout);
        pause();
    } else if (!strcmp(argv[1], "zombie")) {
        start(spin, 0);
        puts("ready");
        fflush(stdout);
        pthread_exit(NULL);
    } else if (!strcmp(argv[1], "vfork")) {
        puts("ready");
        fflush(stdout);
        if (!vfork()) {
            sleep(30);
            _exit(0);
        }
    } else if (!strcmp(argv[1], "become")) {
        puts("ready");
        fflush(stdout);
        if (fgets(line, sizeof line, stdin)) execv(argv[2], argv + 2);
        return 5;
    } else if (!strcmp(argv[1], "exec")) {
        start(spin, 0);
        puts("ready");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin)) {
            if (!strcmp(line, "thread\n")) {
                start(again, 0);
                pause();
            }
            again(NULL);
        }
    }
    return 0;
}
