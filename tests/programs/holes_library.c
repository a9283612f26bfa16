// A library for holes.c.
#define STACKS_ELSEWHERE
#include "stacks.h"

NOINLINE static void *inner(void *(*f)(unsigned long), unsigned long size) {
    volatile char room[300];
    room[size % sizeof room] = 1;
    void *block = f(size);
    KEEP(room);
    return block;
}

void *library_call(void *(*f)(unsigned long), unsigned long size) {
    void *block = inner(f, size);
    KEEP(block);
    return block;
}
