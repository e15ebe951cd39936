// Threads with known places in the kernel: `zero` reads a megabyte of zeros at a time, `user` calls nothing, `vfork` waits
// uninterruptibly for a child that never gets further. Says `ready`, ends with its input.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static char buffer[1 << 20];
static volatile unsigned long sink;

static __attribute__((noinline)) void read_zeros(int zeros)
{
    for (int i = 0; i < 1000; i++)
        sink += read(zeros, buffer, sizeof(buffer));
    sink++;
}

static __attribute__((noinline)) void stay_in_user_mode(void)
{
    for (int i = 0; i < 100000000; i++)
        sink += i;
    sink++;
}

static void *zero(void *unused)
{
    int zeros = open("/dev/zero", O_RDONLY);

    prctl(PR_SET_NAME, "zero");
    for (;;)
        read_zeros(zeros);
    return unused;
}

static void *user(void *unused)
{
    prctl(PR_SET_NAME, "user");
    for (;;)
        stay_in_user_mode();
    return unused;
}

static void *waits(void *unused)
{
    prctl(PR_SET_NAME, "vfork");
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return unused;
}

int main(int count, char **words)
{
    pthread_t thread;
    char byte;

    for (int i = 1; i < count; i++)
        pthread_create(&thread, 0, !strcmp(words[i], "zero") ? zero : !strcmp(words[i], "user") ? user : waits, 0);
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    // A process with an uninterruptible thread exits only by SIGKILL, which also ends its child.
    kill(getpid(), SIGKILL);
    return 0;
}
