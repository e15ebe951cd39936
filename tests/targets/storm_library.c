// A library that calls back, by functions whose names begin with WHO; PAD bytes of code before them.
#define JOIN(who, name) who##_##name
#define NAMED(who, name) JOIN(who, name)
#define OWN(name) __attribute__((noipa, noinline)) NAMED(WHO, name)
#define STAY __asm__ volatile("" ::: "memory")
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number
__asm__(".text\n.skip " TEXT(PAD) ", 0xcc\n");
void OWN(inner)(void (*back)(void)) {
    volatile char room[PAD % 500 + 16];
    room[0] = 1;
    back();
    room[1] = room[0];
}
void OWN(outer)(void (*back)(void)) {
    NAMED(WHO, inner)(back);
    STAY;
}
__attribute__((noipa, noinline)) void library_entry(void (*back)(void)) {
    NAMED(WHO, outer)(back);
    STAY;
}
