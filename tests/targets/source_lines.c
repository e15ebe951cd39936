// Spends time on two lines of one function, and measures how much on each. At SIGTERM it prints
// both, ns of CPU time.
#include <signal.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t ended;
static volatile unsigned long sink;

static void end(int signal) { ended = signal; }

static long long used(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((noinline)) static void hot(long long spent[2]) {
    long long begun = used();
    for (unsigned long i = 0; i < 3000000; i++) sink += i;  // LINE A
    long long between = used();
    for (unsigned long i = 0; i < 1000000; i++) sink += i;  // LINE B
    long long after = used();
    spent[0] += between - begun;
    spent[1] += after - between;
}

int main(void) {
    long long spent[2] = {0, 0};
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    while (!ended) hot(spent);
    printf("%lld %lld\n", spent[0], spent[1]);
    return 0;
}
