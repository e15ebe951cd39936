// Functions that are inlined, at known nesting, and one that is not. Its addresses are what the test names.
#include <stdio.h>

volatile unsigned long sink;

static inline __attribute__((always_inline)) void innermost(unsigned long n) {
    for (unsigned long i = 0; i < n; i++) {
        sink += i * n;
    }
}

static inline __attribute__((always_inline)) void middle(unsigned long n) {
    innermost(n);
    sink ^= n;
}

__attribute__((noinline)) void outermost(unsigned long n) {
    middle(n);
    sink += 1;
}

static __attribute__((noinline)) unsigned long hidden(unsigned long n) {
    sink -= n;
    return sink * 3;
}

int main(int argc, char **argv) {
    (void)argv;
    outermost((unsigned long)argc);
    printf("%lu\n", hidden((unsigned long)argc));
    return 0;
}
