// A block that grows, shrinks, moves and stays; a failing realloc leaves the block alone.
#include "truth.h"
#include <stdint.h>

NOINLINE char *grow(char *block, size_t from, size_t to) { return (char *)resized(realloc(block, to), from, to); }

int main(void) {
    char *block = (char *)NEW(100);
    memset(block, 7, 100);
    size_t size = 100;
    for (size_t next = 150; next < 3000000; next = next * 3 / 2) {
        block = grow(block, size, next);
        MUST(block && block[0] == 7 && block[99] == 7);
        size = next;
    }
    volatile size_t huge = SIZE_MAX / 2 + 1;
    MUST(realloc(block, huge) == NULL && errno == ENOMEM);
    MUST(block[99] == 7);
    for (; size > 200; size /= 2) block = grow(block, size, size / 2);
    // The neighbour keeps the block from growing in place.
    void *wall = NEW(64);
    block = grow(block, size, 5000);
    MUST(block && block[99] == 7);
    FREE(wall, 64);
    say("truth function grow %lu %lu", truth.reallocs, truth.bytes - 164);
    say("truth leaked grow 1 5000");
    say_truth("total");
    return 0;
}
