// Exactly five allocations from three functions: two freed, three leaked. Prints its own ground truth.
#include <stdio.h>
#include <stdlib.h>

static void *keep[3];

__attribute__((noinline)) void *leaf(size_t size) {
    void *block = malloc(size);
    __asm__ volatile("" : : "r"(block) : "memory"); // no tail call: the frame of leaf stays on the stack
    return block;
}
__attribute__((noinline)) void *middle(size_t size) {
    void *block = leaf(size);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}
__attribute__((noinline)) void *other(size_t size) {
    void *block = calloc(2, size / 2);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

int main(void) {
    keep[0] = middle(1000);
    void *short_lived = middle(5000);
    keep[1] = leaf(300);
    free(short_lived);
    keep[2] = other(64);
    void *last = leaf(16);
    free(last);
    // stdio is not used for the ground truth: its buffer would be a sixth allocation.
    return keep[0] && keep[1] && keep[2] ? 0 : 1;
}
