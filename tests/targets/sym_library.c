// A library: one exported function, then one that is not, so that a nearest-name search would name it wrongly.
volatile unsigned long sink;

static unsigned long secret(unsigned long n);

__attribute__((visibility("default"))) unsigned long exported(unsigned long n) {
    return secret(n) + 1;
}

static __attribute__((noinline, noclone)) unsigned long secret(unsigned long n) {
    for (unsigned long i = 0; i < n; i++) {
        sink += i;
    }
    return sink;
}
