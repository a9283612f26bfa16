// Threads end by the system call: the only one, or the first one before another, which ends so, too, or returns. With
// "gone" the first one has left by pthread_exit; "bare" is the call itself, which nobody sees.
#include "truth.h"
#include <pthread.h>
#include <sys/syscall.h>

static const char *way;

static void *other(void *argument) {
    usleep(100000);
    void *block = NEW(222);
    KEEP(block);
    say("truth size 222 1");
    fflush(stdout);
    if (strcmp(way, "returns")) syscall(SYS_exit, 4);
    return argument;
}

int main(int argc, char **argv) {
    MUST(argc == 2);
    way = argv[1];
    void *block = NEW(111);
    KEEP(block);
    if (!strcmp(way, "only") || !strcmp(way, "bare")) {
        say("truth size 111 1");
        fflush(stdout);
    } else {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, other, NULL) == 0);
        if (!strcmp(way, "gone")) pthread_exit(NULL);
    }
#ifdef __x86_64__
    if (!strcmp(way, "bare")) __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(3L) : "rcx", "r11", "memory");
#endif
    syscall(SYS_exit, 3);
    return 99;
}
