// A block whose stack the program states itself, as libgcc sees it: the line `stack SIZE PC PC …`, from the caller of the
// function that allocates outwards. Sizes are used once each.
#ifndef STACKS_H
#define STACKS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#ifdef __GLIBC__
#include <execinfo.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")

#if !defined(STACKS_ELSEWHERE) && !defined(__GLIBC__)
// musl has no `backtrace`. libgcc finds objects as it does without glibc's function for that.
#include <unwind.h>
int _dl_find_object(void *pc, void *found) { return -1; }
struct walk {
    void **pcs;
    int room, count;
};
static _Unwind_Reason_Code one_frame(struct _Unwind_Context *context, void *to) {
    struct walk *walk = to;
    // The first frame is that of `backtrace`.
    if (walk->count >= 0) walk->pcs[walk->count] = (void *)_Unwind_GetIP(context);
    return ++walk->count < walk->room ? _URC_NO_REASON : _URC_END_OF_STACK;
}
NOINLINE static int backtrace(void **pcs, int room) {
    struct walk walk = {pcs, room, -1};
    _Unwind_Backtrace(one_frame, &walk);
    return walk.count;
}
#endif

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
