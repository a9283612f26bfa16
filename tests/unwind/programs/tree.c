// Functions of every shape that compilers lay out differently. Compiled many times, each time with other flags and
// another TAG, into one program.
#include "tree.h"
#include <alloca.h>
#include <stdarg.h>
#include <string.h>

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define FN(name) PASTE(name, TAG)
#define OUTLINE __attribute__((noinline, noclone))

OUTLINE long FN(plain)(Walk *w, int d) {
    volatile long x[7];
    x[d % 7] = d;
    long r = go(w, d - 1);
    return r + x[d % 7];
}
OUTLINE long FN(small)(Walk *w, int d) {
    return go(w, d - 1) + 1;
}
OUTLINE long FN(big_frame)(Walk *w, int d) {
    volatile char bytes[5000];
    bytes[d] = 1;
    check(w);
    return go(w, d - 1) + bytes[d];
}
// A dynamic frame needs rbp even without frame pointers.
OUTLINE long FN(variable_length)(Walk *w, int d) {
    int n = 1 + (int)(next_random(w) % 40);
    volatile long v[n];
    v[n - 1] = d;
    check(w);
    return go(w, d - 1) + v[n - 1];
}
OUTLINE long FN(alloca_)(Walk *w, int d) {
    char *p = alloca(16 + next_random(w) % 300);
    memset(p, 1, 16);
    long r = go(w, d - 1);
    check(w);
    return r + p[3];
}
// Over-aligned locals: the frame is realigned, and with alloca the CFA is in memory.
OUTLINE long FN(realigned)(Walk *w, int d) {
    volatile long a[8] __attribute__((aligned(64)));
    a[1] = d;
    long r = go(w, d - 1);
    check(w);
    return r + a[1];
}
OUTLINE long FN(realigned_alloca)(Walk *w, int d) {
    volatile long a[8] __attribute__((aligned(128)));
    a[1] = d;
    volatile char *p = alloca(8 + next_random(w) % 64);
    p[0] = 1;
    long r = go(w, d - 1);
    check(w);
    return r + a[1] + p[0];
}
OUTLINE long FN(stack_arguments)(Walk *w, int d, long a, long b, long c, long e, long f, long g, long h, long i) {
    long r = (d & 1) ? go(w, d - 1) : go_with_stack_arguments(w, d - 1, a, b, c, e, f, g, h, i);
    return r + a + i;
}
OUTLINE long FN(call_stack_arguments)(Walk *w, int d) {
    long r = FN(stack_arguments)(w, d, 1, 2, 3, 4, 5, 6, 7, d);
    check(w);
    return r;
}
OUTLINE long FN(variadic)(Walk *w, int d, ...) {
    va_list ap;
    va_start(ap, d);
    long s = va_arg(ap, long);
    long r = go(w, d - 1);
    va_end(ap);
    return r + s;
}
OUTLINE long FN(call_variadic)(Walk *w, int d) {
    return FN(variadic)(w, d, (long)d, 2.0, 3.0) + 1;
}
typedef struct {
    long x[5];
} Wide;
OUTLINE Wide FN(wide_result)(Walk *w, int d) {
    Wide s;
    memset(&s, 0, sizeof s);
    s.x[0] = go(w, d - 1);
    s.x[1] = d;
    return s;
}
OUTLINE long FN(call_wide_result)(Walk *w, int d) {
    Wide s = FN(wide_result)(w, d);
    check(w);
    return s.x[0] + s.x[1];
}
OUTLINE long FN(many_registers)(Walk *w, int d) {
    long a = next_random(w), b = next_random(w), c = next_random(w), e = next_random(w), f = next_random(w);
    long g = next_random(w);
    long r = go(w, d - 1);
    check(w);
    r += go(w, d - 2);
    return r + a + b + c + e + f + g;
}
OUTLINE long FN(loop)(Walk *w, int d) {
    long r = 0;
    int n = (int)(next_random(w) % 4);
    for (int i = 0; i < n; i++) {
        r += go(w, d - 1 - i);
        check(w);
    }
    return r;
}
// The prologue comes after the early return.
OUTLINE long FN(shrink_wrapped)(Walk *w, int d) {
    if (next_random(w) % 3 == 0)
        return 1;
    volatile long x[3];
    x[0] = 1;
    long r = go(w, d - 1);
    check(w);
    return r + x[0];
}
OUTLINE long FN(tail_call)(Walk *w, int d) {
    return go(w, d - 1);
}

__attribute__((constructor)) static void FN(add)(void) {
    Function all[] = {
        FN(plain),         FN(small),
        FN(big_frame),     FN(variable_length),
        FN(alloca_),       FN(call_stack_arguments),
        FN(call_variadic), FN(call_wide_result),
        FN(many_registers), FN(loop),
        FN(shrink_wrapped), FN(tail_call),
#ifndef NOT_REALIGNED
        FN(realigned),     FN(realigned_alloca),
#endif
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        add_function(all[i]);
}
