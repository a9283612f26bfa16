// A block whose stack the program states itself, as libgcc sees it: the line `stack SIZE PC PC …`, from the caller of the
// function that allocates outwards. Sizes are used once each.
#ifndef STACKS_H
#define STACKS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")

#ifndef STACKS_ELSEWHERE
// A block of `size` bytes, kept, whose stack is stated unless `quiet`.
NOINLINE void *stated(unsigned long size) {
    void *pcs[128];
    static char line[4096];
    int count = backtrace(pcs, 128);
    int length = snprintf(line, sizeof line, "stack %lu", size);
    for (int i = 1; i < count; i++)
        length += snprintf(line + length, sizeof line - length, " %lx", (unsigned long)pcs[i]);
    line[length++] = '\n';
    if (write(1, line, length) != length) abort();
    void *block = malloc(size);
    KEEP(block);
    return block;
}

// The first call loads libgcc.
__attribute__((constructor)) static void prepare_stacks(void) {
    void *pcs[4];
    backtrace(pcs, 4);
}
#endif
#endif
