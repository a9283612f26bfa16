// 4,096 call paths to one malloc: the blocks of every other one are freed.
#include "truth.h"

static NOINLINE void *descend(unsigned path, int levels) {
    void *block;
    if (levels == 0) return malloc(32);
    if (path & 1) {
        block = descend(path >> 1, levels - 1);
        __asm__ volatile("nop" : : "r"(block) : "memory");
    } else {
        block = descend(path >> 1, levels - 1);
        __asm__ volatile("" : : "r"(block) : "memory");
    }
    return block;
}

int main(void) {
    for (unsigned path = 0; path < 4096; path++) {
        void *block = descend(path, 12);
        KEEP(block);
        if (path % 2) free(block);
    }
    return 0;
}
