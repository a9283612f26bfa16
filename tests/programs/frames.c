// Frames of every shape between main and malloc: variable length, alloca, aligned, large, many registers, many
// arguments, indirect calls, qsort's callback through the C library.
#include "truth.h"
#include <alloca.h>

NOINLINE void *leaf(size_t size) { return NEW(size); }

NOINLINE void *variable(size_t size, int room) {
    volatile char array[room];
    array[room - 1] = 1;
    KEEP(array);
    void *block = leaf(size);
    KEEP(array);
    return block;
}
NOINLINE void *with_alloca(size_t size, int room) {
    char *array = alloca((size_t)room);
    memset(array, 1, (size_t)room);
    KEEP(array);
    void *block = leaf(size);
    KEEP(array);
    return block;
}
NOINLINE void *aligned(size_t size) {
    volatile char array[100] __attribute__((aligned(256)));
    array[0] = 1;
    KEEP(array);
    void *block = leaf(size);
    KEEP(array);
    return block;
}
NOINLINE void *large(size_t size) {
    volatile char array[100000];
    array[0] = array[99999] = 1;
    KEEP(array);
    void *block = leaf(size);
    KEEP(array);
    return block;
}
NOINLINE void *many(size_t size, long a, long b, long c, long d, long e, long f, long g, long h, long i) {
    long j = a * b + c, k = d * e - f, l = g ^ h, m = i + a;
    void *block = leaf(size);
    KEEP(a + b * c - d + e * f - g + h * i + j * k - l * m);
    return block;
}
static void *(*volatile pointer)(size_t) = leaf;
NOINLINE void *indirect(size_t size) {
    void *block = pointer(size);
    KEEP(block);
    return block;
}
NOINLINE int compare(const void *a, const void *b) {
    void *block = leaf(707);
    FREE(block, 707);
    return *(const int *)a - *(const int *)b;
}

int main(void) {
    void *blocks[6];
    for (int i = 1; i <= 50; i++) {
        blocks[0] = variable(701, i * 37);
        blocks[1] = with_alloca(702, i * 41);
        blocks[2] = aligned(703);
        blocks[3] = large(704);
        blocks[4] = many(705, i, 2, 3, 4, 5, 6, 7, 8, 9);
        blocks[5] = indirect(706);
        for (int k = 0; k < 6; k++) FREE(blocks[k], 701 + (size_t)k);
    }
    int numbers[] = {5, 3, 9, 1, 7, 2};
    unsigned long before = truth.allocs;
    qsort(numbers, 6, sizeof *numbers, compare);
    say("sorted: %d %d %d %d %d %d", numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]);
    say("truth size 707 %lu", truth.allocs - before);
    say("truth stack 701 leaf variable main");
    say("truth stack 702 leaf with_alloca main");
    say("truth stack 703 leaf aligned main");
    say("truth stack 704 leaf large main");
    say("truth stack 705 leaf many main");
    say("truth stack 706 leaf indirect main");
    say("truth stack 707 leaf compare");
    say("truth function main %lu %lu", truth.allocs, truth.bytes);
    say_truth("own");
    return 0;
}
