// A signal handler leaves mmap, munmap, sbrk and mremap by siglongjmp, ten times; then the same frame and a deeper one
// allocate 1,000 blocks of 20,001 bytes, and free every other.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static sigjmp_buf before;
static volatile int jumps;

static void leave(int signal) {
    (void)signal;
    jumps++;
    siglongjmp(before, 1);
}

static __attribute__((noinline)) void take(int count) {
    for (int i = 0; i < count; i++) {
        void *block = malloc(20001);
        memset(block, 1, 1);
        if (i % 2) free(block);
    }
}

static void call(const char *which) {
    if (!strcmp(which, "sbrk")) {
        sbrk(4096);
        sbrk(-4096);
        return;
    }
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(which, "mremap")) pages = mremap(pages, 8192, 4096, 0);
    munmap(pages, 8192);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    static char other[1 << 16];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    sigaltstack(&stack, NULL);
    int flags = SA_NODEFER | (arguments[2][0] == '1' ? SA_ONSTACK : 0);
    struct sigaction action = {.sa_handler = leave, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 100}, {0, 100}};
    sigsetjmp(before, 1);
    if (jumps == 0) setitimer(ITIMER_REAL, &timer, NULL);
    while (jumps < 10) call(arguments[1]);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < 500; i++) {
        void *block = malloc(20001);
        memset(block, 1, 1);
        if (i % 2) free(block);
    }
    take(500);
    return 3;
}
