// Allocates by one function that two others call, each of which fills a part of the heap.
#include "truth.h"

NOINLINE static char *fill(size_t size) {
    char *block = malloc(size);
    KEEP(block);
    return block;
}
NOINLINE static void reads(void) {
    for (int i = 0; i < 1000; i++) KEEP(fill(4000));
}
NOINLINE static void writes(void) {
    for (int i = 0; i < 1000; i++) KEEP(fill(4000));
}

int main(void) {
    reads();
    writes();
    return 0;
}
