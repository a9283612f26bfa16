// Takes all the address space that it may have, to the last page, and goes on working with what it has: new backtraces,
// new threads that fail to start, blocks that come and go. Then gives everything back and works on.
#include "truth.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MOST = 4096 };
static void *taken[MOST];
static size_t sizes[MOST];

NOINLINE static void *deep(int depth, unsigned path, size_t size) {
    void *block;
    if (depth == 0) {
        block = malloc(size);
        if (block) count_alloc(block, size);
    } else if (path & 1) {
        block = deep(depth - 1, path >> 1, size);
    } else {
        block = deep(depth - 1, path >> 1 | 1u << 31, size);
    }
    KEEP(block);
    return block;
}

static unsigned long work(unsigned from, unsigned to) {
    unsigned long got = 0;
    for (unsigned path = from; path < to; path++) {
        void *block = deep(12, path, 24);
        if (!block) continue;
        got++;
        count_free(24);
        free(block);
    }
    return got;
}

static void *nothing(void *argument) { return argument; }

int main(void) {
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    MUST(statm && fscanf(statm, "%lu", &pages) == 1 && fclose(statm) == 0);
    // What there is, whoever has taken it, and some more.
    struct rlimit limit = {pages * 4096 + (300ul << 20), RLIM_INFINITY};
    MUST(work(0, 100) == 100);
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    int count = 0;
    for (size_t size = 64ul << 20; size >= 4096; size /= 2)
        while (count < MOST) {
            void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (map == MAP_FAILED) break;
            taken[count] = map;
            sizes[count++] = size;
        }
    MUST(count > 0);
    unsigned long got = work(0, 60000);
    pthread_t thread;
    int refused = pthread_create(&thread, NULL, nothing, NULL);
    if (!refused) pthread_join(thread, NULL);
    for (int i = 0; i < 20; i++) {
        usleep(30000);
        got += work(0, 1000);
    }
    while (count > 0) {
        count--;
        MUST(munmap(taken[count], sizes[count]) == 0);
    }
    MUST(work(0, 4000) == 4000);
    say("worked on: %d", got == 80000);
    say("thread refused: %d", refused != 0);
    return 0;
}
