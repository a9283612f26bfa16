// A program that serves all its allocations itself, from a static pool; nobody else's malloc is ever called.
#include "truth.h"

static char pool[1 << 20] __attribute__((aligned(64)));
static size_t used;

void *malloc(size_t size) {
    size_t at = __atomic_fetch_add(&used, (size + 79) & ~63UL, __ATOMIC_RELAXED);
    MUST(at + size <= sizeof pool);
    *(size_t *)(void *)(pool + at) = size;
    return pool + at + 16;
}
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size) {
    void *new = malloc(size);
    if (block) {
        size_t old = *(size_t *)(void *)((char *)block - 16);
        memcpy(new, block, old < size ? old : size);
    }
    return new;
}
void free(void *block) { KEEP(block); }

int main(void) {
    for (int i = 0; i < 100; i++) {
        char *block = strdup("a text of some length, copied by the C library");
        block = realloc(block, 200);
        KEEP(block);
        free(block);
    }
    FILE *file = fopen("/proc/self/comm", "r");
    char line[64] = {0};
    MUST(file && fgets(line, sizeof line, file));
    fclose(file);
    say("served from the pool: %d", used > 20000);
    return 14;
}
