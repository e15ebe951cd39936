// Templates, virtual calls, lambdas, exceptions: threads blocked or busy below them. Prints `ready`.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define OWN __attribute__((noipa, noinline))
#define STAY __asm__ volatile("" ::: "memory")

static std::atomic<int> announced;
static int never[2];

OWN void wait_here() {
    char c;
    announced++;
    while (read(never[0], &c, 1) < 0 && errno == EINTR) STAY;
    STAY;
}

namespace shop {
template <typename T> struct Cart {
    T value;
    OWN void checkout() {
        wait_here();
        STAY;
    }
};
struct Base {
    virtual void run() = 0;
    virtual ~Base() = default;
};
struct Derived : Base {
    OWN void run() override {
        Cart<std::vector<int>> cart;
        cart.checkout();
        STAY;
    }
};
} // namespace shop

OWN void through_virtual(shop::Base *base) {
    base->run();
    STAY;
}
OWN void blocked_virtual() {
    shop::Derived derived;
    through_virtual(&derived);
    STAY;
}
struct Unwound {
    // Waits in a destructor that an exception runs.
    OWN ~Unwound() {
        wait_here();
        STAY;
    }
};
OWN void thrower() {
    Unwound unwound;
    throw 42;
}
OWN void blocked_throw() {
    try {
        thrower();
    } catch (int) {
    }
    STAY;
}
OWN void catcher() {
    try {
        throw 42;
    } catch (int) {
        wait_here();
    }
    STAY;
}
OWN void blocked_catch() {
    catcher();
    STAY;
}
OWN void blocked_sort() {
    std::vector<int> values{3, 1, 2};
    std::function<bool(int, int)> less = [](int a, int b) {
        wait_here();
        STAY;
        return a < b;
    };
    std::sort(values.begin(), values.end(), less);
    STAY;
}
OWN void throws_deep(int depth) {
    if (depth == 0) throw depth;
    throws_deep(depth - 1);
    STAY;
}
OWN void busy_throw() {
    announced++;
    for (;;) {
        try {
            throws_deep(8);
        } catch (int) {
        }
        STAY;
    }
}

int main() {
    if (pipe(never)) return 1;
    struct {
        const char *name;
        void (*run)();
    } kinds[] = {{"virtual", blocked_virtual},
                 {"throw", blocked_throw},
                 {"catch", blocked_catch},
                 {"sort", blocked_sort},
                 {"busy", busy_throw}};
    for (auto kind : kinds)
        std::thread([kind] {
            prctl(PR_SET_NAME, kind.name);
            kind.run();
        }).detach();
    while (announced < 5) usleep(1000);
    puts("ready");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) < 0 && errno == EINTR) STAY;
    _exit(0);
}
