/* A thread `jit` that runs code made while the program runs, busy, or (with the argument `wait`) waiting in what that
 * calls. Lines on stdin say what to do; each is answered by `ok`.
 *   say NAME    appends to /tmp/perf-PID.map that the code is called NAME
 *   raw TEXT    appends TEXT as it is; \xNN are bytes
 *   over NAME   appends that NAME lies over all of libc's code around `usleep`
 *   path        answers with the path of the map instead
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static const unsigned char code[] = {
    0x55,                               /* push rbp */
    0x48, 0x89, 0xe5,                   /* mov rbp, rsp */
    0xb9, 0x40, 0x42, 0x0f, 0x00,       /* mov ecx, 1000000 */
    0xff, 0xc9,                         /* 1: dec ecx */
    0x75, 0xfc,                         /* jnz 1b */
    0xff, 0xd7,                         /* call rdi */
    0x5d,                               /* pop rbp */
    0xc3,                               /* ret */
};
static unsigned char *page;

static int waits;

__attribute__((noinline)) static void rest(void) {
    while (waits)
        pause();
    __asm__ volatile("");
}

__attribute__((noinline)) static void run_made(void) {
    ((void (*)(void (*)(void)))page)(rest);
    __asm__ volatile("");
}

static void *run(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "jit");
    for (;;)
        run_made();
    return NULL;
}

int main(int count, char **words) {
    waits = count > 1 && !strcmp(words[1], "wait");
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 1;
    memset(page, 0xcc, 4096);
    memcpy(page, code, sizeof code);
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    puts("ready");
    fflush(stdout);
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        const char *answer = "ok";
        if (!strcmp(line, "path")) {
            answer = path;
        } else {
            FILE *map = fopen(path, "a");
            if (!map)
                return 2;
            if (!strncmp(line, "say ", 4))
                fprintf(map, "%lx %zx %s\n", (unsigned long)page, sizeof code, line + 4);
            if (!strncmp(line, "over ", 5))
                fprintf(map, "%lx 200000 %s\n", (unsigned long)((uintptr_t)usleep - 0x100000), line + 5);
            if (!strncmp(line, "raw ", 4))
                for (const char *at = line + 4; *at;) {
                    unsigned byte;
                    if (sscanf(at, "\\x%2x", &byte) == 1) {
                        fputc((int)byte, map);
                        at += 4;
                    } else
                        fputc(*at++, map);
                }
            fclose(map);
        }
        puts(answer);
        fflush(stdout);
    }
    return 0;
}
