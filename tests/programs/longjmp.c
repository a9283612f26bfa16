// longjmp and siglongjmp out of deep recursion, 5,000 times, allocating before, in between and after; the stacks stay
// right.
#include "truth.h"
#include <setjmp.h>

static jmp_buf back;
static sigjmp_buf signal_back;

NOINLINE void *at_bottom(size_t size) { return NEW(size); }
NOINLINE void *at_top(size_t size) { return NEW(size); }

static void *carried;

NOINLINE void dive(int depth, int way) {
    volatile char room[48];
    room[0] = (char)depth;
    KEEP(room);
    if (depth > 0) {
        dive(depth - 1, way);
    } else {
        carried = at_bottom(90);
        if (way) siglongjmp(signal_back, 2);
        longjmp(back, 1);
    }
    KEEP(room);
}

int main(void) {
    volatile int jumps = 0;
    for (volatile int i = 0; i < 5000; i++) {
        int from = i % 2 ? sigsetjmp(signal_back, 1) : setjmp(back);
        if (from == 0) {
            dive(i % 30, i % 2);
        } else {
            jumps += 1;
            void *top = at_top(91);
            FREE(top, 91);
            FREE(carried, 90);
        }
    }
    say("jumped %d times", jumps);
    say("truth function at_bottom 5000 450000");
    say("truth function at_top 5000 455000");
    say("truth stack 91 at_top main");
    say("truth stack 90 at_bottom dive");
    say("truth function dive 5000 450000");
    say_truth("total");
    return 0;
}
