/* The main thread ends; another one lives on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#define OWN __attribute__((noipa, noinline))
#define STAY __asm__ volatile("" ::: "memory")

OWN static void wait_alone(void) {
    char c;
    while (read(0, &c, 1) < 0) STAY;
    STAY;
}
OWN static void *orphan(void *argument) {
    (void)argument;
    prctl(PR_SET_NAME, "orphan");
    puts("ready");
    fflush(stdout);
    wait_alone();
    _exit(0);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, orphan, 0);
    pthread_exit(0);
}
