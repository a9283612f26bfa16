// Publishes what it has completed in the shared file of its first argument, for a reader that survives it: after each
// malloc and each free the thread's counters go up. Runs until it is killed, with as many threads as the second
// argument says; the third is the pause in microseconds after every 100 steps.
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

struct counters { unsigned long allocs, frees; char apart[112]; };
static struct counters *counters;
static long pause_us;

NOINLINE void *published_block(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

static void *work(void *argument) {
    struct counters *mine = &counters[(long)argument];
    void *blocks[64] = {0};
    unsigned long seed = 12345 + (unsigned long)argument;
    for (long step = 1;; step++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        unsigned slot = seed >> 58;
        if (blocks[slot]) {
            free(blocks[slot]);
            blocks[slot] = NULL;
            __atomic_fetch_add(&mine->frees, 1, __ATOMIC_RELEASE);
        } else {
            blocks[slot] = published_block(1000 + (seed >> 40) % 1000);
            __atomic_fetch_add(&mine->allocs, 1, __ATOMIC_RELEASE);
        }
        if (pause_us && step % 100 == 0) usleep((useconds_t)pause_us);
    }
    return NULL;
}

int main(int argc, char **argv) {
    MUST(argc > 3);
    int fd = open(argv[1], O_RDWR);
    long threads = atol(argv[2]);
    pause_us = atol(argv[3]);
    MUST(fd >= 0 && threads >= 1);
    counters = (struct counters *)mmap(NULL, threads * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(counters != MAP_FAILED);
    close(fd);
    for (long i = 1; i < threads; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, work, (void *)i) == 0);
    }
    work(NULL);
    return 0;
}
