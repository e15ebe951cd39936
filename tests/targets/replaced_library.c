// A library that burns CPU in functions whose names begin with WHO; PAD bytes of code before them, and frames of another size.
#include <time.h>
#define JOIN(who, name) who##_##name
#define NAMED(who, name) JOIN(who, name)
#define OWN(name) __attribute__((noipa, noinline)) NAMED(WHO, name)
#define STAY __asm__ volatile("" ::: "memory")
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number
__asm__(".text\n.skip " TEXT(PAD) ", 0xcc\n");

static long cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
void OWN(spin)(void) {
    volatile char room[PAD % 500 + 16];
    for (int i = 0; i < 20000; i++) room[i % 16] = i;
}
void OWN(outer)(long ns) {
    volatile char room[PAD % 300 + 16];
    long end = cpu_ns() + ns;
    room[0] = 1;
    while (cpu_ns() < end) NAMED(WHO, spin)();
    room[1] = room[0];
}
__attribute__((noipa, noinline)) void library_burn(long ns) {
    NAMED(WHO, outer)(ns);
    STAY;
}
