// C++ names: templates, virtual calls, lambdas, operators, and a recursion.
//
//   c++ -O2 -g -pthread -o /tmp/shapes demos/shapes.cpp && /tmp/shapes
//   sudo "$(command -v sampletop)" -p "$(pidof shapes)"
//
// What to see: names without parameter lists: geo::Square::area, geo::Circle::area, geo::sum<geo::Shape>, the lambda in
// geo::paint; geo::fibonacci, which calls itself and counts once per stack; inlined functions (geo::clamp) as rows of
// their own. Press b for lines instead of functions.
//
//   shapes [SECONDS]    how long (default 0: until killed)
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <pthread.h>
#include <thread>
#include <vector>

namespace geo {

static inline double clamp(double x) {
    for (int i = 0; i < 50; i++)
        x = x > 1e6 ? x * 0.5 : x + 1.0;
    return x;
}

struct Shape {
    virtual ~Shape() = default;
    virtual double area(double size) const = 0;
};

struct Square : Shape {
    double area(double size) const override {
        double total = 0;
        for (int i = 0; i < 20000; i++)
            total += std::sqrt(size + i);
        return total;
    }
};

struct Circle : Shape {
    double area(double size) const override {
        double total = 0;
        for (int i = 0; i < 400; i++)
            total += clamp(size * i);
        return total;
    }
};

template <typename T> __attribute__((noinline)) double sum(const std::vector<std::unique_ptr<T>> &items) {
    double total = 0;
    for (const auto &item : items)
        total += item->area(total);
    return total;
}

__attribute__((noinline)) unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__attribute__((noinline)) double paint(int times) {
    double total = 0;
    std::function<void(int)> stroke = [&total](int i) {
        for (int j = 0; j < 20000; j++)
            total += std::sin(i + j);
    };
    for (int i = 0; i < times; i++)
        stroke(i);
    return total;
}

} // namespace geo

static volatile double sink;

static void run(const char *name, std::function<void()> turn) {
    std::thread([=] {
        pthread_setname_np(pthread_self(), name);
        for (;;)
            turn();
    }).detach();
}

int main(int argc, char **argv) {
    static std::vector<std::unique_ptr<geo::Shape>> shapes;
    shapes.push_back(std::make_unique<geo::Square>());
    shapes.push_back(std::make_unique<geo::Circle>());
    run("areas", [] { sink = geo::sum(shapes); });
    run("recursion", [] { sink = geo::fibonacci(30); });
    run("painter", [] {
        sink = geo::paint(10);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
    std::puts("ready");
    std::fflush(stdout);
    int seconds = argc > 1 ? std::atoi(argv[1]) : 0;
    do
        std::this_thread::sleep_for(std::chrono::seconds(seconds > 0 ? seconds : 3600));
    while (seconds == 0);
    std::quick_exit(0); // the threads go with it
}
