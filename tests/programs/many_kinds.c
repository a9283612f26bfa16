// Many backtraces (65,536), each with blocks of many sizes; few blocks live at once.
// Argument: blocks in thousands. Prints nothing.
#include <stdint.h>
#include <stdlib.h>

enum { DEPTH = 16, LIVE = 1024 };

static void *kept[LIVE];

static void *left(uint64_t path, int depth, size_t size);
static void *right(uint64_t path, int depth, size_t size);

static inline void *next(uint64_t path, int depth, size_t size) {
    if (depth == 0) return malloc(size);
    return path & 1 ? left(path >> 1, depth - 1, size) : right(path >> 1, depth - 1, size);
}

__attribute__((noinline)) static void *left(uint64_t path, int depth, size_t size) {
    void *block = next(path, depth, size);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

__attribute__((noinline)) static void *right(uint64_t path, int depth, size_t size) {
    void *block = next(path, depth, size);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

int main(int argc, char **argv) {
    long blocks = argc > 1 ? atol(argv[1]) * 1000 : 1000;
    uint64_t seed = 88172645463325252;
    for (long i = 0; i < blocks; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        size_t size = 1 + (seed >> 20) % (1UL << (seed >> 56) % 16);
        free(kept[i % LIVE]);
        kept[i % LIVE] = next(seed & 0xffff, DEPTH, size);
    }
    return 0;
}
