/* Names that must not be found in what --redact writes: `secret FIFO --gnusecret`. Threads that hold a mutex, wait for it, read from a
   named pipe, and burn CPU. Says `ready`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;
static const char *fifo;

__attribute__((noinline)) static void zebra_hold(void) { pthread_mutex_lock(&lock); for (;;) sleep(1000); }
__attribute__((noinline)) static void zebra_wait(void) { pthread_mutex_lock(&lock); sink++; }
__attribute__((noinline)) static void zebra_read(void) { char byte; int fd = open(fifo, O_RDWR); while (read(fd, &byte, 1) >= 0) sink++; }
__attribute__((noinline)) static void zebra_spin(void) { for (;;) for (int i = 0; i < 100000; i++) sink += i; }

static void *run(void *what) { ((void (*)(void))what)(); return NULL; }

static void start(void (*what)(void), const char *name) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, (void *)what);
    pthread_setname_np(thread, name);
}

int main(int argc, char **argv) {
    fifo = argc > 1 ? argv[1] : "/dev/zero";
    start(zebra_hold, "quaggahold-1");
    usleep(50000);
    start(zebra_wait, "quaggawait-1");
    start(zebra_wait, "quaggawait-2");
    start(zebra_read, "quaggaread");
    start(zebra_spin, "quaggaspin");
    usleep(50000);
    puts("ready");
    fflush(stdout);
    for (;;) sleep(1000);
}
