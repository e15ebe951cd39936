// A service with one cause of trouble, chosen by the first argument, beside what every service has:
// a pool without work, a main thread that waits for the end, a ticker.
//
//   hot      one thread computes in Basket::price
//   backend  eight threads wait in Supplier::ask for an answer that does not come
//   child    two threads wait in Picture::shrink for a child process
//   runaway  one of fifty threads never leaves Router::parse; the others serve
//   cores    six threads compute in Mixer::mix, more than there are cores
//   convoy   twenty threads wait in Cache::lookup for a mutex; its holder sleeps in Cache::rebuild
//   self     a pool whose four threads wait in Report::total for a task of that pool
//   full     six threads wait in Journal::append for room in a queue that nobody drains
//   alloc    two threads spend their time in Encoder::encode, in the allocator
//   fsync    two threads write in Ledger::commit to the file of the second argument
//   mmap     twelve threads map and unmap memory in Screen::resize, in one address space
//   idle     nothing at all
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
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

struct Router {
    OWN void parse(bool for_ever) {
        do {
            for (int i = 0; i < 2000; i++) sum = sum + i * 0.5;
        } while (for_ever);
    }
};

struct Mixer {
    OWN void mix() {
        for (int i = 0; i < 2000000; i++) sum = sum + i * 0.5;
    }
};

struct Cache {
    std::mutex lock;
    OWN void lookup() { std::lock_guard<std::mutex> held(lock); }
    OWN void rebuild() {
        std::lock_guard<std::mutex> held(lock);
        rest(100);
    }
};

struct Report {
    std::promise<int> part;
    OWN int total() { return part.get_future().get(); }
};

struct Journal {
    std::mutex lock;
    std::condition_variable drained;
    std::deque<int> entries;
    OWN void append(int entry) {
        std::unique_lock<std::mutex> held(lock);
        drained.wait(held, [this] { return entries.size() < 100; });
        entries.push_back(entry);
    }
};

struct Encoder {
    OWN void encode() {
        void *blocks[64];
        for (int i = 0; i < 64; i++) blocks[i] = malloc(2000 + 500 * i);
        for (int i = 0; i < 64; i++) free(blocks[i]);
    }
};

struct Ledger {
    int file;
    OWN void commit() {
        if (pwrite(file, "entry", 5, 0) != 5 || fsync(file)) _exit(1);
    }
};

struct Screen {
    OWN void resize() {
        const size_t size = 4 << 20;
        void *pixels = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pixels == MAP_FAILED) _exit(1);
        memset(pixels, 1, size);
        munmap(pixels, size);
    }
};

OWN static void serve(Router &router, bool for_ever) { router.parse(for_ever); rest(20); }
OWN static void play(Mixer &mixer) { mixer.mix(); rest(0); }
OWN static void show(Cache &cache) { cache.lookup(); rest(1); }
OWN static void print(Report &report) { report.total(); rest(0); }
OWN static void order(Journal &journal) { journal.append(1); rest(0); }
OWN static void draw(Screen &screen) { screen.resize(); sum = sum + 1; }
OWN static void stream(Encoder &encoder) { encoder.encode(); sum = sum + 1; }
OWN static void book(Ledger &ledger) { ledger.commit(); rest(0); }
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
    if (!strcmp(args[1], "runaway"))
        for (int i = 0; i < 50; i++)
            named("conn", [i] { Router router; for (;;) serve(router, i == 17); });
    if (!strcmp(args[1], "cores"))
        for (int i = 0; i < 6; i++) named("audio", [] { Mixer mixer; for (;;) play(mixer); });
    if (!strcmp(args[1], "convoy")) {
        static Cache cache;
        for (int i = 0; i < 20; i++) named("page", [] { for (;;) show(cache); });
        named("warmer", [] { for (;;) cache.rebuild(); });
    }
    if (!strcmp(args[1], "self"))
        for (int i = 0; i < 4; i++) named("task", [] { Report report; for (;;) print(report); });
    if (!strcmp(args[1], "full")) {
        static Journal journal;
        for (int i = 0; i < 6; i++) named("till", [] { for (;;) order(journal); });
    }
    if (!strcmp(args[1], "mmap"))
        for (int i = 0; i < 12; i++) named("window", [] { Screen screen; for (;;) draw(screen); });
    if (!strcmp(args[1], "alloc"))
        for (int i = 0; i < 2; i++) named("codec", [] { Encoder encoder; for (;;) stream(encoder); });
    if (!strcmp(args[1], "fsync"))
        for (int i = 0; i < 2; i++)
            named("books", [=] {
                Ledger ledger{open(args[2], O_WRONLY | O_CREAT, 0600)};
                for (;;) book(ledger);
            });
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
