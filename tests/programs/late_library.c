// A library without unwind information in memory, for late.c.
#define STACKS_ELSEWHERE
#include "stacks.h"

NOINLINE static void *late_inner(void *(*f)(unsigned long), unsigned long size) {
    volatile char room[300];
    room[size % sizeof room] = 1;
    void *block = f(size);
    KEEP(room);
    return block;
}

void *late_call(void *(*f)(unsigned long), unsigned long size) {
    volatile char room[70];
    room[size % sizeof room] = 1;
    void *block = late_inner(f, size);
    KEEP(room);
    return block;
}
