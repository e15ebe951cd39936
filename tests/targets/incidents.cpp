// A service with one cause of trouble, chosen by the first argument, beside what every service has:
// a pool without work, a main thread that waits for the end, a ticker.
//
//   hot      one thread computes in Basket::price
//   backend  eight threads wait in Supplier::ask for an answer that does not come
//   child    two threads wait in Picture::shrink for a child process
//   idle     nothing at all
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#define OWN __attribute__((noipa))

static void named(const char *name, std::function<void()> body) {
    std::thread([=] {
        prctl(PR_SET_NAME, name);
        body();
    }).detach();
}

struct Orders {
    std::mutex lock;
    std::condition_variable filled;
    std::deque<int> list;
    OWN int next_order() {
        std::unique_lock<std::mutex> held(lock);
        filled.wait(held, [this] { return !list.empty(); });
        return list.front();
    }
};

static void rest(long ms) {
    timespec time{ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, nullptr);
}

static volatile double sum;

struct Basket {
    OWN void price() {
        for (int i = 0; i < 200000; i++) sum = sum + i * 0.5;
    }
};

struct Supplier {
    int ends[2];
    OWN void ask() {
        char answer;
        if (recv(ends[0], &answer, 1, 0) < 0) _exit(1);
    }
};

struct Picture {
    OWN void shrink() {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            execlp("sleep", "sleep", "60", (char *)nullptr);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
    }
};

OWN static void checkout(Basket &basket) { basket.price(); rest(0); }
OWN static void refresh(Supplier &supplier) { supplier.ask(); rest(0); }
OWN static void upload(Picture &picture) { picture.shrink(); rest(0); }

int main(int, char **args) {
    static Orders orders;
    for (int i = 0; i < 40; i++) named("pool", [] { for (;;) orders.next_order(); });
    named("ticker", [] { for (;;) rest(500); });
    if (!strcmp(args[1], "hot")) named("web", [] { Basket basket; for (;;) checkout(basket); });
    if (!strcmp(args[1], "backend"))
        for (int i = 0; i < 8; i++)
            named("sync", [] {
                Supplier supplier;
                socketpair(AF_UNIX, SOCK_STREAM, 0, supplier.ends);
                for (;;) refresh(supplier);
            });
    if (!strcmp(args[1], "child"))
        for (int i = 0; i < 2; i++) named("img", [] { Picture picture; for (;;) upload(picture); });
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
