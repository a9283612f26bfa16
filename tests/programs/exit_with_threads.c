// The process ends in the way of the argument while its threads allocate: _exit, _Exit, quick_exit, exit, return,
// syscall, or the first thread's pthread_exit.
#include "truth.h"
#include <pthread.h>
#include <sys/syscall.h>

static int ending;

NOINLINE void *busy_block(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}
NOINLINE void *counted_block(size_t size) { return NEW(size); }

static void *busy(void *argument) {
    size_t size = (size_t)argument;
    while (!__atomic_load_n(&ending, __ATOMIC_ACQUIRE)) {
        free(busy_block(size));
        usleep(5);
    }
    return NULL;
}

static void at_quick_exit_block(void) {
    void *block = counted_block(222);
    KEEP(block);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "_exit";
    at_quick_exit(at_quick_exit_block);
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, busy, (void *)(64 + i)) == 0);
    void *kept = counted_block(111);
    KEEP(kept);
    usleep(20000);
    say("ending by %s", way);
    if (!strcmp(way, "quick_exit")) {
        say("truth function counted_block 2 333");
        quick_exit(6);
    }
    say("truth function counted_block 1 111");
    if (!strcmp(way, "_exit")) _exit(3);
    if (!strcmp(way, "_Exit")) _Exit(4);
    if (!strcmp(way, "exit")) exit(5);
    if (!strcmp(way, "syscall")) syscall(SYS_exit_group, 7);
    if (!strcmp(way, "pthread_exit")) {
        __atomic_store_n(&ending, 1, __ATOMIC_RELEASE);
        pthread_exit(NULL);
    }
    return 8;
}
