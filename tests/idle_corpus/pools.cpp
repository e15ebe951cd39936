// Pools and loops of C++'s own library. Names of threads say the truth: `rest-` waits for work,
// `job-` waits inside a job. Each pool has threads of both.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace shop {

using Task = std::function<void()>;

static void named(const std::string &name) { prctl(PR_SET_NAME, name.c_str()); }
static volatile int done;

// What jobs wait for. The store after each wait keeps it from being a tail call.
struct Payments {
    std::mutex lock;
    std::condition_variable changed;
    bool paid = false;
    void wait_paid() {
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [this] { return paid; });
        done = 1;
    }
};

struct Connections {
    std::mutex lock;
    std::condition_variable returned;
    std::vector<int> free;
    int get_connection() {
        std::unique_lock<std::mutex> held(lock);
        while (free.empty()) returned.wait(held);
        return free.back();
    }
};

template <class T> struct Channel {
    std::mutex lock;
    std::condition_variable filled;
    std::deque<T> list;
    T pop() {
        std::unique_lock<std::mutex> held(lock);
        filled.wait(held, [this] { return !list.empty(); });
        T first = std::move(list.front());
        list.pop_front();
        return first;
    }
    void push(T item) {
        std::lock_guard<std::mutex> held(lock);
        list.push_back(std::move(item));
        filled.notify_one();
    }
};

static Payments payments;
static Connections connections;
static std::promise<int> price;
static std::counting_semaphore<8> permits(0);

static void checkout() { payments.wait_paid(); done = 2; }
static void query() { done = connections.get_connection(); }
static void quote() {
    static std::shared_future<int> answer = price.get_future().share();
    std::shared_future<int> copy = answer;
    done = copy.get();
}
static void confirm() {
    Channel<int> replies;
    done = replies.pop();
}
static void retry() { std::this_thread::sleep_for(std::chrono::hours(1)); done = 3; }
static void convert() {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("sleep", "sleep", "600", (char *)nullptr);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    done = status;
}
static void limit() { permits.acquire(); done = 4; }
static void fan_out() {
    std::thread part([] { named("job-part"); checkout(); });
    part.join();
    done = 5;
}

static const std::vector<void (*)()> JOBS{checkout, query, quote, confirm, retry, convert, limit, fan_out};

// Every kind of job in a pool, each in a thread of its own.
template <class Pool> static void fill(Pool &pool, const std::string &name) {
    for (auto job : JOBS)
        pool.post([=] { named("job-" + name); job(); done = 6; });
}

constexpr int THREADS = 10; // JOBS and two at rest

// A lambda that loops, as in most pools that fit into one file.
struct LambdaPool {
    std::vector<std::thread> threads;
    std::deque<Task> tasks;
    std::mutex lock;
    std::condition_variable filled;
    bool stop = false;
    explicit LambdaPool(std::string name) {
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back([this, name] {
                named("rest-" + name);
                for (;;) {
                    Task task;
                    {
                        std::unique_lock<std::mutex> held(lock);
                        filled.wait(held, [this] { return stop || !tasks.empty(); });
                        if (stop) return;
                        task = std::move(tasks.front());
                        tasks.pop_front();
                    }
                    task();
                }
            });
    }
    void post(Task task) {
        std::lock_guard<std::mutex> held(lock);
        tasks.push_back(std::move(task));
        filled.notify_one();
    }
};

// A member function that loops and takes from a queue of its own.
template <class Derived> struct MethodPool {
    std::vector<std::thread> threads;
    Channel<Task> tasks;
    std::string name;
    void begin(void (Derived::*loop)()) {
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back(loop, static_cast<Derived *>(this));
    }
    void post(Task task) { tasks.push(std::move(task)); }
};

struct WorkerLoopPool : MethodPool<WorkerLoopPool> {
    void worker_loop() {
        named("rest-" + name);
        for (;;) tasks.pop()();
    }
};
struct ProcessPool : MethodPool<ProcessPool> {
    // A verb that a request handler might have, too.
    void process() {
        named("rest-" + name);
        for (;;) {
            Task task = tasks.pop();
            task();
        }
    }
};
struct ConsumePool : MethodPool<ConsumePool> {
    Task get() { return tasks.pop(); }
    void consume() {
        named("rest-" + name);
        for (;;) get()();
    }
};

// Threads that can be told to stop.
struct TokenPool {
    std::vector<std::jthread> threads;
    std::deque<Task> tasks;
    std::mutex lock;
    std::condition_variable_any filled;
    explicit TokenPool(std::string name) {
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back([this, name](std::stop_token stop) {
                named("rest-" + name);
                while (!stop.stop_requested()) {
                    std::unique_lock<std::mutex> held(lock);
                    if (!filled.wait(held, stop, [this] { return !tasks.empty(); })) return;
                    Task task = std::move(tasks.front());
                    tasks.pop_front();
                    held.unlock();
                    task();
                }
            });
    }
    void post(Task task) {
        std::lock_guard<std::mutex> held(lock);
        tasks.push_back(std::move(task));
        filled.notify_one();
    }
};

struct SemaphorePool {
    std::vector<std::thread> threads;
    std::deque<Task> tasks;
    std::mutex lock;
    std::counting_semaphore<1000> ready{0};
    explicit SemaphorePool(std::string name) {
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back([this, name] {
                named("rest-" + name);
                for (;;) {
                    ready.acquire();
                    lock.lock();
                    Task task = std::move(tasks.front());
                    tasks.pop_front();
                    lock.unlock();
                    task();
                }
            });
    }
    void post(Task task) {
        lock.lock();
        tasks.push_back(std::move(task));
        lock.unlock();
        ready.release();
    }
};

// One thread for each object, waiting for a number to change (C++20).
struct AtomicPool {
    std::vector<std::thread> threads;
    std::deque<Task> tasks;
    std::mutex lock;
    std::atomic<int> version{0};
    explicit AtomicPool(std::string name) {
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back([this, name] {
                named("rest-" + name);
                for (;;) {
                    int seen = version.load();
                    Task task;
                    lock.lock();
                    if (!tasks.empty()) {
                        task = std::move(tasks.front());
                        tasks.pop_front();
                    }
                    lock.unlock();
                    if (task) task();
                    else version.wait(seen);
                }
            });
    }
    void post(Task task) {
        lock.lock();
        tasks.push_back(std::move(task));
        lock.unlock();
        version++;
        version.notify_all();
    }
};

// An active object: its thread wakes up now and then.
struct Flusher {
    std::mutex lock;
    std::condition_variable changed;
    bool stop = false;
    std::thread thread{[this] {
        named("rest-flusher");
        std::unique_lock<std::mutex> held(lock);
        while (!changed.wait_for(held, std::chrono::milliseconds(200), [this] { return stop; })) done = 7;
    }};
};

static void refresh_cache() {
    named("rest-refresh");
    for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        done = 8;
    }
}

struct Metrics {
    void collect() { done = 9; }
    void report() {
        named("rest-metrics");
        for (;;) {
            collect();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
    }
};

} // namespace shop

int main() {
    using namespace shop;
    static LambdaPool lambda("cvlambda");
    fill(lambda, "cvlambda");
    static WorkerLoopPool worker;
    worker.name = "cvworker";
    worker.begin(&WorkerLoopPool::worker_loop);
    fill(worker, "cvworker");
    static ProcessPool process;
    process.name = "cvprocess";
    process.begin(&ProcessPool::process);
    fill(process, "cvprocess");
    static ConsumePool consume;
    consume.name = "cvconsume";
    consume.begin(&ConsumePool::consume);
    fill(consume, "cvconsume");
    static TokenPool token("jthread");
    fill(token, "jthread");
    static SemaphorePool semaphore("sem20");
    fill(semaphore, "sem20");
    static AtomicPool atomic("atomic");
    fill(atomic, "atomic");
    static Flusher flusher;
    static std::thread refresh(refresh_cache);
    static Metrics metrics;
    static std::thread report(&Metrics::report, &metrics);
    // Jobs in threads of their own.
    std::vector<std::future<void>> asynchronous;
    for (auto job : JOBS)
        asynchronous.push_back(std::async(std::launch::async, [=] { named("job-async"); job(); done = 10; }));
    named("rest-main");
    puts("ready");
    fflush(stdout);
    refresh.join();
}
