// Allocation at the end of a deep recursion; the argument is the depth.
#include "truth.h"

NOINLINE void *descend(long depth) {
    void *block = depth > 1 ? descend(depth - 1) : NEW(777);
    KEEP(block);
    return block;
}

int main(int argc, char **argv) {
    long depth = argc > 1 ? atol(argv[1]) : 100;
    void *block = descend(depth);
    FREE(block, 777);
    block = descend(depth);
    say("truth function descend 2 1554");
    say("truth frees main 1");
    say("truth frees descend 0");
    say("truth recursion 777 descend %ld", depth);
    say("truth leaked descend 1 777");
    say_truth("total");
    return block ? 0 : 1;
}
