// The heap looks exactly as without a recorder: same distances between blocks, same arena figures, same break.
#include "truth.h"
#include <malloc.h>
#include <stdint.h>

enum { BLOCKS = 3000 };
static char *block[BLOCKS];

int main(void) {
    struct mallinfo2 before = mallinfo2();
    say("at main: arena %zu, in use %zu, mapped blocks %zu", before.arena, before.uordblks, before.hblks);
    char *start = sbrk(0);
    unsigned long hash = 14695981039346656037UL;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = (size_t)(i * 7919 % 5000) + 1;
        block[i] = NEW(size);
        MUST(block[i]);
        hash = (hash ^ (unsigned long)(block[i] - block[0])) * 1099511628211UL;
        hash = (hash ^ malloc_usable_size(block[i])) * 1099511628211UL;
        if (i % 3 == 2) {
            FREE(block[i - 1], (size_t)((i - 1) * 7919 % 5000) + 1);
            block[i - 1] = NULL;
        }
    }
    say("distances %lx", hash);
    say("first block at page offset %lx", (unsigned long)block[0] & 0xfff);
    struct mallinfo2 after = mallinfo2();
    say("at end: arena %zu, in use %zu, mapped blocks %zu", after.arena, after.uordblks, after.hblks);
    say("break moved by %ld", (long)((char *)sbrk(0) - start));
    say("trim: %d, mallopt: %d", malloc_trim(0), mallopt(M_MMAP_THRESHOLD, 1 << 20));
    say_truth("total");
    return 0;
}
