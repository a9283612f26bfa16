// Says which allocator serves it, by the usable sizes it hands out and by the symbols that are there, and allocates.
#include "truth.h"
#include <dlfcn.h>
#include <malloc.h>

int main(void) {
    static const size_t sizes[] = {1, 25, 100, 1000, 5000, 20000, 70000};
    say("jemalloc %d, tcmalloc %d, mimalloc %d", dlsym(RTLD_DEFAULT, "mallctl") != NULL,
        dlsym(RTLD_DEFAULT, "tc_malloc") != NULL, dlsym(RTLD_DEFAULT, "mi_malloc") != NULL);
    for (int i = 0; i < 7; i++) {
        void *block = NEW(sizes[i]);
        say("%zu: usable %zu", sizes[i], malloc_usable_size(block));
        block = resized(realloc(block, sizes[i] * 2), sizes[i], sizes[i] * 2);
        say("twice: usable %zu", malloc_usable_size(block));
        if (i % 2) FREE(block, sizes[i] * 2);
    }
    void *aligned = count_alloc(aligned_alloc(64, 6400), 6400);
    FREE(aligned, 6400);
    for (int i = 0; i < 1000; i++) {
        void *block = NEW(48);
        FREE(block, 48);
    }
    say_truth("own");
    return 0;
}
