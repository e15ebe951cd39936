// Boost.Asio without Boost. Names of threads say the truth.
#include <sys/prctl.h>

#include <asio.hpp>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

static volatile int done;
static std::mutex lock;
static std::condition_variable changed;
static std::promise<int> answer;

static void named(const char *name) { prctl(PR_SET_NAME, name); }
static void checkout() {
    std::unique_lock<std::mutex> held(lock);
    changed.wait(held, [] { return done == -1; });
    done = 1;
}
static void quote() { done = answer.get_future().get(); }

int main() {
    asio::io_context service;
    auto work = asio::make_work_guard(service);
    std::vector<std::thread> threads;
    for (int i = 0; i < 5; i++) threads.emplace_back([&] { named("rest-asio"); service.run(); });
    asio::post(service, [] { named("job-asio"); checkout(); });
    asio::post(service, [] { named("job-asio"); quote(); });

    asio::thread_pool pool(4);
    for (int i = 0; i < 4; i++) asio::post(pool, [] { named("rest-asiopool"); std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
    asio::post(pool, [] { named("job-asiopool"); checkout(); });

    asio::steady_timer tick(service, std::chrono::hours(1));
    tick.async_wait([](const asio::error_code &) {});
    named("rest-asiomain");
    puts("ready");
    fflush(stdout);
    threads[0].join();
}
