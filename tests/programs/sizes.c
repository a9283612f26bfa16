// Sizes from nothing to beyond 32 bits, to the byte.
#include "truth.h"

int main(void) {
    static const size_t sizes[] = {0,        1,        15,        16,              17,       255,
                                   256,      65535,    65536,     1 << 20,         1L << 31, (1L << 32) - 1,
                                   1L << 32, 5L << 30, 1L << 36, (1L << 32) + 1,  (1L << 45) + 7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = NEW(sizes[i]);
        say("%zu: %s", sizes[i], block ? "block" : "none");
        if (block) {
            say("truth size %zu 1", sizes[i]);
            if (i % 2) FREE(block, sizes[i]);
        }
    }
    say_truth("total");
    return 0;
}
