/* Burns CPU in two functions, the second as long as it is told: `changed ROUNDS BETA_MS`. Prints what each has used by the thread's
   own clock, ms. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static volatile unsigned long sink;

__attribute__((noinline)) static void burn(double ms) {
    double end = cpu_ms() + ms;
    while (cpu_ms() < end)
        for (int i = 0; i < 5000; i++) sink += i;
}

__attribute__((noinline)) static void alpha(double ms) { burn(ms); sink++; }
__attribute__((noinline)) static void beta(double ms) { burn(ms); sink++; }

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    double beta_ms = argc > 2 ? atof(argv[2]) : 10, used[2] = {0, 0};
    for (int i = 0; i < rounds; i++) {
        double start = cpu_ms();
        alpha(10);
        double middle = cpu_ms();
        beta(beta_ms);
        used[0] += middle - start;
        used[1] += cpu_ms() - middle;
    }
    printf("alpha %f\nbeta %f\n", used[0], used[1]);
    return 0;
}
