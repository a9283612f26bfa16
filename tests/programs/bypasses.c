// Uses functions that an allocator's library offers beside the C library's names.
#include "truth.h"

#ifdef MIMALLOC
void *mi_malloc(size_t size);
void mi_free(void *block);
#define GIVE(size) mi_malloc(size)
#define TAKE(block) mi_free(block)
#else
void *mallocx(size_t size, int flags);
void dallocx(void *block, int flags);
#define GIVE(size) mallocx(size, 0)
#define TAKE(block) dallocx(block, 0)
#endif

int main(void) {
    void *block = GIVE(4321);
    KEEP(block);
    if (!block) return 1;
    TAKE(block);
    void *other = NEW(1234);
    FREE(other, 1234);
    say("truth size 1234 1");
    return 0;
}
