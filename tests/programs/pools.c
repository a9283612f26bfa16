// A pool that tells the recorder of the blocks it hands out from one large block.
#include "truth.h"
#include "../../preload/include/tracehound.h"

static char *pool;
static size_t used;

NOINLINE void *pool_block(size_t size) {
    void *block = pool + used;
    used += (size + 63) & ~63UL;
    if (tracehound_pool_alloc) tracehound_pool_alloc(block, size);
    return count_alloc(block, size);
}
NOINLINE void pool_release(void *block, size_t size) {
    count_free(size);
    if (tracehound_pool_free) tracehound_pool_free(block);
    KEEP(block);
}

int main(void) {
    pool = NEW(1 << 20);
    void *blocks[300];
    for (size_t i = 0; i < 300; i++) blocks[i] = pool_block(i + 17);
    for (size_t i = 0; i < 300; i += 2) pool_release(blocks[i], i + 17);
    say("truth function pool_block 300 %d", 300 * 17 + 299 * 150);
    say("truth leaked pool_block 150 %d", 150 * 17 + 150 * 150);
    say_truth("total");
    return 0;
}
