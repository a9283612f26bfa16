// errno is what the C library left: set by failures, untouched by successes and by free.
#include "truth.h"
#include <malloc.h>
#include <stdint.h>

int main(void) {
    volatile size_t huge = SIZE_MAX / 2 + 1;
    void *blocks[200];
    for (int i = 0; i < 200; i++) {
        errno = 1000 + i;
        blocks[i] = NEW(10 + (size_t)i * 40);
        MUST(blocks[i] && errno == 1000 + i);
    }
    for (int i = 0; i < 200; i++) {
        errno = 2000 + i;
        blocks[i] = resized(realloc(blocks[i], 20 + (size_t)i * 900), 10 + (size_t)i * 40, 20 + (size_t)i * 900);
        MUST(blocks[i] && errno == 2000 + i);
    }
    errno = 0;
    MUST(malloc(huge) == NULL);
    say("malloc of too much: errno %d", errno);
    errno = 0;
    MUST(aligned_alloc(64, huge) == NULL);
    say("aligned_alloc of too much: errno %d", errno);
    for (int i = 0; i < 200; i++) {
        errno = 3000 + i;
        FREE(blocks[i], 20 + (size_t)i * 900);
        MUST(errno == 3000 + i);
    }
    errno = 77;
    free(NULL);
    MUST(errno == 77);
    say_truth("total");
    return 0;
}
