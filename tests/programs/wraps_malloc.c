// A program with its own malloc family on top of the next one (RTLD_NEXT), counting what passes through.
#include "truth.h"
#include <dlfcn.h>

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static unsigned long allocs, bytes, frees;
static char early[4096];
static size_t early_used;
static int resolving;

static void resolve(void) {
    resolving = 1;
    *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next_free = dlsym(RTLD_NEXT, "free");
    resolving = 0;
}

static void *early_block(size_t size) {
    void *block = early + early_used;
    early_used += (size + 15) & ~15UL;
    MUST(early_used <= sizeof early);
    return block;
}

void *malloc(size_t size) {
    if (resolving) return early_block(size);
    if (!next_malloc) resolve();
    truth_add(&allocs, 1), truth_add(&bytes, size);
    return next_malloc(size);
}
void *calloc(size_t count, size_t size) {
    if (resolving) return early_block(count * size);
    if (!next_malloc) resolve();
    truth_add(&allocs, 1), truth_add(&bytes, count * size);
    return next_calloc(count, size);
}
void *realloc(void *block, size_t size) {
    if (!next_malloc) resolve();
    truth_add(&allocs, 1), truth_add(&bytes, size);
    return next_realloc(block, size);
}
void free(void *block) {
    if (!block || ((char *)block >= early && (char *)block < early + sizeof early)) return;
    if (!next_malloc) resolve();
    truth_add(&frees, 1);
    next_free(block);
}

int main(void) {
    // What happened before is not ours: a recorder's thread may have asked the loader for storage.
    unsigned long allocs_before = allocs, bytes_before = bytes, frees_before = frees;
    for (int i = 0; i < 500; i++) {
        char *block = malloc(150);
        block = realloc(block, 15000);
        KEEP(block);
        free(block);
    }
    char *text = strdup("from the C library");
    free(text);
    allocs -= allocs_before, bytes -= bytes_before, frees -= frees_before;
    say("truth total %lu %lu %lu 500 %lu 0", allocs, bytes, frees, allocs - frees - 500);
    return 0;
}
