// Burns in `open_burn`; after a line on its standard input it becomes the program that its argument names.
// Argument `secret`: burns in `secret_burn`, until its standard input ends.
// Argument `closed`: waits, closed to all users but root (PR_SET_DUMPABLE).
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile unsigned long sink;

static int line_waits(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

__attribute__((noipa)) static void open_burn(void) {
    for (int i = 0; i < 1000000; i++) sink++;
}

__attribute__((noipa)) static void secret_burn(void) {
    for (int i = 0; i < 1000000; i++) sink++;
}

int main(int argc, char **argv) {
    char byte;
    if (argc < 2) return 2;
    if (!strcmp(argv[1], "secret")) {
        // The line for the program before it has been left to be read.
        while (read(0, &byte, 1) == 1 && byte != '\n') {}
        while (!line_waits()) secret_burn();
        return 0;
    }
    if (!strcmp(argv[1], "closed")) prctl(PR_SET_DUMPABLE, 0);
    puts("ready");
    fflush(stdout);
    while (!line_waits()) open_burn();
    return execl(argv[1], argv[1], "secret", (char *)0);
}
