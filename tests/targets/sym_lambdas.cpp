// Two lambdas and a local class in one function, a lambda in a member function, one of no function: inlined where compilers
// like, called where they may not.
volatile long sink;

template <class F> static void __attribute__((noinline)) apply(F f) { f(7); }
template <class F> static inline void twice(F f) { f(3); f(4); }

namespace work {
int process(int n) {
    auto adds = [&](int k) { for (long i = 0; i < n; i++) sink = sink + k; };
    auto takes = [&](int k) { for (long i = 0; i < n; i++) sink = sink - k; };
    apply(adds);
    twice(adds);
    apply(takes);
    twice(takes);
    struct Local { void run(int n) { for (long i = 0; i < n; i++) sink = sink ^ n; } } local;
    local.run(n);
    return 0;
}
struct Shop { void sell(int n); };
void Shop::sell(int n) {
    apply([n](int k) { for (long i = 0; i < n; i++) sink = sink * k; });
    twice([n](int k) { for (long i = 0; i < n; i++) sink = sink / (k + 1); });
}
}

static auto everywhere = [](int k) { for (long i = 0; i < k; i++) sink = sink + k; };

int main(int count, char **) {
    work::process(count);
    work::Shop().sell(count);
    apply(everywhere);
    twice(everywhere);
}
