// What both files of a program of names have. Every place asks for a size of its own.
#include <stdlib.h>

// A function of its own, which the compiler neither copies nor merges; one that is nowhere but in its callers.
#define OUT __attribute__((noipa))
#define IN __attribute__((always_inline))

static inline void *keep(void *block) {
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}
#define KEEP(size) keep(malloc(size))

static OUT __attribute__((unused)) void in_header(void) { KEEP(10141); }
