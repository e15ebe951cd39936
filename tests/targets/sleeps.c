// `sleeps N`: burns N ms and sleeps for 300 ms, again and again. Before each sleep it prints CLOCK_MONOTONIC in ns.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    long long burn = argc > 1 ? atoll(argv[1]) * 1000000 : 0;

    puts("ready");
    for (;;) {
        long long begin = now();

        while (now() < begin + burn)
            ;
        printf("%lld\n", now());
        fflush(stdout);
        usleep(300000);
    }
}
