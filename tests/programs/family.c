// Every allocating function of the C library once, with its edge cases.
#include "truth.h"
#include <malloc.h>
#include <stdint.h>
#ifndef __GLIBC__
// musl has none, and its memalign takes powers of two alone.
#define pvalloc(size) memalign(4096, size)
#define memalign(align, size) (memalign)((align) == 24 ? 32 : (align), size)
#endif

static void *keep[16];

NOINLINE void *by_malloc(void) { return NEW(1001); }
NOINLINE void *by_calloc(void) { return count_alloc(calloc(7, 143), 1001); }
NOINLINE void *by_realloc(void) { return count_alloc(realloc(NULL, 1003), 1003); }
NOINLINE void *by_reallocarray(void) { return count_alloc(reallocarray(NULL, 59, 17), 1003); }
NOINLINE void *by_posix_memalign(void) {
    void *block = NULL;
    MUST(posix_memalign(&block, 256, 1005) == 0);
    MUST((uintptr_t)block % 256 == 0);
    return count_alloc(block, 1005);
}
NOINLINE void *by_aligned_alloc(void) { return count_alloc(aligned_alloc(64, 1006), 1006); }
NOINLINE void *by_memalign(void) { return count_alloc(memalign(24, 1007), 1007); }
NOINLINE void *by_valloc(void) { return count_alloc(valloc(1008), 1008); }
NOINLINE void *by_pvalloc(void) { return count_alloc(pvalloc(1009), 1009); }

int main(void) {
    keep[0] = by_malloc();
    keep[1] = by_calloc();
    keep[2] = by_realloc();
    keep[3] = by_reallocarray();
    keep[4] = by_posix_memalign();
    keep[5] = by_aligned_alloc();
    keep[6] = by_memalign();
    keep[7] = by_valloc();
    keep[8] = by_pvalloc();
    for (int i = 0; i < 9; i++) MUST(keep[i]);
    MUST((uintptr_t)keep[5] % 64 == 0 && (uintptr_t)keep[6] % 32 == 0);
    MUST((uintptr_t)keep[7] % 4096 == 0 && (uintptr_t)keep[8] % 4096 == 0);
    MUST(malloc_usable_size(keep[0]) >= 1001);

    void *empty = count_alloc(malloc(0), 0);
    MUST(empty);
    FREE(empty, 0);
    free(NULL);

    keep[0] = resized(realloc(keep[0], 90001), 1001, 90001);
    keep[1] = resized(reallocarray(keep[1], 300, 300), 1001, 90000);
#ifdef __GLIBC__
    count_free(1003);
    MUST(realloc(keep[2], 0) == NULL);
#else
    // musl gives a new block.
    FREE(keep[2], 1003);
#endif
    FREE(keep[3], 1003);

    // Failures leave their error and no event.
    volatile size_t huge = SIZE_MAX / 2 + 1;
    errno = 0;
    MUST(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(calloc(huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(realloc(keep[4], huge) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(reallocarray(keep[4], huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(memalign(64, huge) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(pvalloc(huge) == NULL && errno == ENOMEM);
    errno = 5;
    void *untouched = &errno;
    MUST(posix_memalign(&untouched, 24, 10) == EINVAL && untouched == &errno);
    MUST(posix_memalign(&untouched, 64, huge) == ENOMEM && untouched == &errno);

    say("truth function by_malloc 1 1001");
    say("truth function by_calloc 1 1001");
    say("truth function by_realloc 1 1003");
    say("truth function by_reallocarray 1 1003");
    say("truth function by_posix_memalign 1 1005");
    say("truth function by_aligned_alloc 1 1006");
    say("truth function by_memalign 1 1007");
    say("truth function by_valloc 1 1008");
    say("truth function by_pvalloc 1 1009");
    say("truth function main 12 %lu", truth.bytes);
    say_truth("total");
    return 0;
}
