// Processes with children, for the tests of several targets.
//
//   family spin NAME            one thread on a core in `spin_NAME_...`, until stdin ends; says its CPU time when asked
//   family fork CHILDREN MS     a parent that always has CHILDREN children, each of which spins for MS and ends
//   family nest DEPTH           a parent that forks a child that forks ... each spins a little; the deepest in `deepest`
//   family storm PER_SECOND     forks children that live for up to 16 ms
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <poll.h>

static volatile unsigned long sink;

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Burns CPU until `parent` is gone or the time is up.
#define SPINNER(name)                                                                                                  \
    __attribute__((noinline)) void name(double till)                                                                   \
    {                                                                                                                  \
        while (seconds(CLOCK_MONOTONIC) < till)                                                                        \
            for (int i = 0; i < 100000; i++)                                                                           \
                sink += i;                                                                                             \
    }
SPINNER(spin_red)
SPINNER(spin_blue)
SPINNER(spin_child)
SPINNER(deepest)

static int stdin_ended(int ms)
{
    struct pollfd fd = {0, POLLIN, 0};
    char c;
    return poll(&fd, 1, ms) > 0 && read(0, &c, 1) <= 0;
}

static void nest(int depth)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (depth > 0 && fork() == 0) {
        nest(depth - 1);
        _exit(0);
    }
    for (;;) {
        if (depth == 0)
            deepest(seconds(CLOCK_MONOTONIC) + 0.05);
        else
            usleep(50000);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    if (!strcmp(what, "spin")) {
        // A share of the time on the core, in percent.
        double share = argc > 3 ? atoi(argv[3]) / 100.0 : 1.0;
        while (!stdin_ended(share < 1.0 ? (int)(20 * (1 - share)) : 0)) {
            double till = seconds(CLOCK_MONOTONIC) + 0.02 * share;
            if (!strcmp(argv[2], "red"))
                spin_red(till);
            else
                spin_blue(till);
        }
        printf("cpu %.0f\n", seconds(CLOCK_PROCESS_CPUTIME_ID) * 1e9);
    } else if (!strcmp(what, "fork")) {
        int wanted = atoi(argv[2]), children = 0;
        double ms = atof(argv[3]);
        while (!stdin_ended(10)) {
            while (waitpid(-1, NULL, WNOHANG) > 0)
                children--;
            for (; children < wanted; children++) {
                if (fork() == 0) {
                    prctl(PR_SET_PDEATHSIG, SIGKILL);
                    prctl(PR_SET_NAME, "a-child");
                    spin_child(seconds(CLOCK_MONOTONIC) + ms / 1000);
                    _exit(0);
                }
            }
        }
    } else if (!strcmp(what, "nest")) {
        if (fork() == 0)
            nest(atoi(argv[2]));
        while (!stdin_ended(1000))
            ;
    } else if (!strcmp(what, "storm")) {
        signal(SIGCHLD, SIG_IGN);
        while (!stdin_ended(1)) {
            for (int i = 0; i < atoi(argv[2]) / 1000; i++)
                if (fork() == 0) {
                    usleep(getpid() % 16 * 1000);
                    _exit(0);
                }
        }
    }
    return 0;
}
