// oneTBB, and OpenMP of GNU or LLVM. Names of threads say the truth.
#include <sys/prctl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#ifdef _OPENMP
#include <omp.h>
#else
#include <oneapi/tbb.h>
#endif

static volatile int done;
static std::mutex lock;
static std::condition_variable changed;
static void named(const char *name) { prctl(PR_SET_NAME, name); }
static void compute() {
    std::unique_lock<std::mutex> held(lock);
    changed.wait(held, [] { return done == -1; });
    done = 1;
}

int main() {
#ifdef _OPENMP
    // Workers wait for the next region at the end of one.
    std::thread region([] {
        named("rest-ompmain");
#pragma omp parallel num_threads(4)
        named("rest-omp");
        named("rest-ompowner");
        for (;;) pause();
    });
    // In this region all threads are in the job.
    std::thread jobs([] {
#pragma omp parallel num_threads(3)
        {
            named("job-omp");
            compute();
            done = 2;
        }
    });
#else
    oneapi::tbb::global_control four(oneapi::tbb::global_control::max_allowed_parallelism, 4);
    struct Names : oneapi::tbb::task_scheduler_observer {
        void on_scheduler_entry(bool) override { named("rest-tbb"); }
        Names() { observe(true); }
    };
    static Names names;
    static oneapi::tbb::task_arena arena(4, 0);
    arena.execute([] {
        oneapi::tbb::parallel_for(0, 64, [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    });
    arena.enqueue([] { named("job-tbb"); compute(); done = 2; });
    std::thread jobs([] { for (;;) pause(); });
    named("rest-tbbmain");
#endif
    sleep(1); // spinning workers of OpenMP go to sleep
    named("rest-main");
    puts("ready");
    fflush(stdout);
    jobs.join();
}
