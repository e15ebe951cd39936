/* A library that is loaded at run time and calls back. */
#define STAY __asm__ volatile("" ::: "memory")
__attribute__((noipa, noinline)) static void library_inner(void (*callback)(void)) {
    callback();
    STAY;
}
__attribute__((noipa, noinline)) void library_entry(void (*callback)(void)) {
    library_inner(callback);
    STAY;
}
