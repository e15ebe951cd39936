// Threads that wake others, and that know how often: for each kind of wait two producers with different rates wake one consumer.
//
// Prints `ready`, and waits for a line on its standard input. Then each producer makes its items, at rest between two of them, and
// the program prints for each consumer: kind, thread id, how often it slept (its voluntary switches), then process id, thread id
// and number of items of each producer; last `end`. It ends with its standard input.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONDVAR, SEMAPHORE, PIPE, SOCKET, OTHER_PROCESS, TIMER, KINDS };
static const char *names[] = {"condvar", "semaphore", "pipe", "socket", "process", "timer"};

struct producer {
    int kind, items;
    long every_us;
    int pid, tid;
};
struct consumer {
    int kind, tid;
    long slept;
    pthread_t thread;
};

static struct producer *producers; // two of each kind, shared with the other process
static struct consumer consumers[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int items;
static sem_t semaphore;
static int pipe_ends[2], other_ends[2], socket_ends[2];
static sem_t *go;

static void rest(long us)
{
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

static int same(int ok)
{
    if (ok < 0) {
        perror("wakers");
        exit(1);
    }
    return ok;
}

static long sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

__attribute__((noinline)) static void produce(struct producer *producer)
{
    char item = 'x';
    switch (producer->kind) {
    case CONDVAR:
        pthread_mutex_lock(&lock);
        items++;
        pthread_mutex_unlock(&lock);
        pthread_cond_signal(&filled);
        break;
    case SEMAPHORE:
        sem_post(&semaphore);
        break;
    case PIPE:
        same(write(pipe_ends[1], &item, 1));
        break;
    case SOCKET:
        same(send(socket_ends[1], &item, 1, 0));
        break;
    case OTHER_PROCESS:
        same(write(other_ends[1], &item, 1));
        break;
    }
}

static void *produce_all(void *argument)
{
    struct producer *producer = argument;
    char name[16];
    snprintf(name, sizeof(name), "%s-%ld", names[producer->kind], producer->every_us);
    pthread_setname_np(pthread_self(), name);
    producer->pid = getpid();
    producer->tid = gettid();
    sem_wait(go);
    for (int i = 0; i < producer->items; i++) {
        rest(producer->every_us);
        produce(producer);
    }
    return NULL;
}

static void consume(struct consumer *consumer)
{
    char item;
    switch (consumer->kind) {
    case CONDVAR:
        pthread_mutex_lock(&lock);
        while (items == 0)
            pthread_cond_wait(&filled, &lock);
        items--;
        pthread_mutex_unlock(&lock);
        break;
    case SEMAPHORE:
        sem_wait(&semaphore);
        break;
    case PIPE:
        same(read(pipe_ends[0], &item, 1));
        break;
    case SOCKET:
        same(recv(socket_ends[0], &item, 1, 0));
        break;
    case OTHER_PROCESS:
        same(read(other_ends[0], &item, 1));
        break;
    case TIMER:
        rest(2000);
        break;
    }
}

static void *consume_all(void *argument)
{
    struct consumer *consumer = argument;
    char name[16];
    struct producer *both = &producers[2 * consumer->kind];
    int total = both[0].items + both[1].items;
    snprintf(name, sizeof(name), "%s-in", names[consumer->kind]);
    pthread_setname_np(pthread_self(), name);
    consumer->tid = gettid();
    if (consumer->kind == TIMER) {
        sem_wait(go);
        total = 300;
    }
    long before = sleeps();
    for (int i = 0; i < total; i++)
        consume(consumer);
    consumer->slept = sleeps() - before;
    return NULL;
}

// A connection over TCP: what is sent there arrives in a softirq.
static void connect_both(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int one = 1, listener = same(socket(AF_INET, SOCK_STREAM, 0));
    same(bind(listener, (struct sockaddr *)&address, length));
    same(listen(listener, 1));
    same(getsockname(listener, (struct sockaddr *)&address, &length));
    socket_ends[1] = same(socket(AF_INET, SOCK_STREAM, 0));
    same(connect(socket_ends[1], (struct sockaddr *)&address, length));
    same(setsockopt(socket_ends[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
    socket_ends[0] = same(accept(listener, NULL, NULL));
}

int main(void)
{
    pthread_t threads[2 * KINDS];
    char line[16];
    size_t shared = 2 * KINDS * sizeof(struct producer) + sizeof(sem_t);
    int of_threads = 0, child;

    producers = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (producers == MAP_FAILED)
        return 1;
    go = (sem_t *)&producers[2 * KINDS];
    sem_init(go, 1, 0);
    sem_init(&semaphore, 0, 0);
    same(pipe(pipe_ends));
    same(pipe(other_ends));
    connect_both();
    for (int kind = 0; kind < TIMER; kind++) {
        producers[2 * kind] = (struct producer){.kind = kind, .items = 300, .every_us = 2000};
        producers[2 * kind + 1] = (struct producer){.kind = kind, .items = 120, .every_us = 5000};
    }
    child = same(fork());
    for (int i = 0; i < 2 * TIMER; i++)
        if ((producers[i].kind == OTHER_PROCESS) == !child)
            pthread_create(&threads[of_threads++], NULL, produce_all, &producers[i]);
    if (!child) {
        for (int i = 0; i < of_threads; i++)
            pthread_join(threads[i], NULL);
        _exit(0);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        consumers[kind].kind = kind;
        pthread_create(&consumers[kind].thread, NULL, consume_all, &consumers[kind]);
    }
    rest(200000000 / 1000);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        return 1;
    for (int i = 0; i < 2 * TIMER + 1; i++)
        sem_post(go);
    for (int i = 0; i < of_threads; i++)
        pthread_join(threads[i], NULL);
    for (int kind = 0; kind < KINDS; kind++)
        pthread_join(consumers[kind].thread, NULL);
    waitpid(child, NULL, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        struct producer *both = &producers[2 * kind];
        printf("%s %d %ld", names[kind], consumers[kind].tid, consumers[kind].slept);
        for (int i = 0; i < 2; i++)
            printf(" %d %d %d", both[i].pid, both[i].tid, both[i].items);
        puts("");
    }
    puts("end");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        ;
    return 0;
}
