// One of each kind of C++ name.
#include <cstdio>
#include <string>
#include <vector>

volatile long sink;

namespace outer {
namespace {
__attribute__((noinline)) void anonymous(int n) { sink += n; }
struct Local {
    __attribute__((always_inline)) void inlined(int n) { sink += n; sink *= 3; }
};
}  // namespace

template <typename T>
struct Box {
    T value;
    __attribute__((noinline)) T get(int n) const { sink += n; return value; }
    __attribute__((noinline)) T operator()(T other) { sink += 1; return value + other; }
    __attribute__((noinline)) explicit operator bool() const { sink += 2; return value != 0; }
};

template <typename F>
__attribute__((noinline)) void apply(F f) { f(3); }

__attribute__((noinline)) void callback(int n) { Local local; local.inlined(n); }

__attribute__((noinline)) std::string tagged(int n) { return std::string(n, 'x'); }
}  // namespace outer

int main(int argc, char **) {
    outer::anonymous(argc);
    outer::Box<int> box{argc};
    sink += box.get(1) + box(2) + static_cast<bool>(box);
    outer::apply([](int n) __attribute__((noinline)) { sink += n; });
    outer::apply<void (*)(int)>(&outer::callback);
    std::puts(outer::tagged(argc).c_str());
    return 0;
}
