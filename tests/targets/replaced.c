// Maps one library after the other at the same address and burns CPU in each: `replaced MS A B`. After each
// line of input, a number, it makes that many rounds and prints the CPU time in A, that in B (ns, by its thread's clock), and the
// number of rounds in which both lay at the same address.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STAY __asm__ volatile("" ::: "memory")
typedef void (*Burn)(long);

static long cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

// By these a stack says which library is called.
__attribute__((noipa, noinline)) void call_a(Burn burn, long ns) {
    burn(ns);
    STAY;
}
__attribute__((noipa, noinline)) void call_b(Burn burn, long ns) {
    burn(ns);
    STAY;
}

static void *use(const char *path, void (*call)(Burn, long), long ns, long *spent) {
    void *library = dlopen(path, RTLD_NOW);
    Burn burn = library ? (Burn)dlsym(library, "library_burn") : NULL;
    if (!burn) {
        puts(dlerror());
        exit(1);
    }
    long begin = cpu_ns();
    call(burn, ns);
    *spent += cpu_ns() - begin;
    dlclose(library);
    return (void *)burn;
}

int main(int count, char **args) {
    if (count < 4) return 2;
    long ns = atof(args[1]) * 1e6;
    char line[32];
    // The program's own first calls of dlopen take memory that stays.
    long spent[2] = {0, 0}, same = 0;
    use(args[2], call_a, 0, spent);
    use(args[3], call_b, 0, spent);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        spent[0] = spent[1] = same = 0;
        for (int round = atoi(line); round > 0; round--) {
            void *a = use(args[2], call_a, ns, &spent[0]);
            void *b = use(args[3], call_b, ns, &spent[1]);
            same += ((unsigned long)a & ~0xffffUL) == ((unsigned long)b & ~0xffffUL);
        }
        printf("%ld\n%ld\n%ld\n", spent[0], spent[1], same);
        fflush(stdout);
    }
    return 0;
}
