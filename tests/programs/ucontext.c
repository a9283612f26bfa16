// Eight coroutines by ucontext on blocks of the heap, switching between any two allocations; each stack shows the
// coroutine it belongs to and no other.
#include "truth.h"
#include <ucontext.h>

enum { COROUTINES = 8, TURNS = 300, STACK = 64 << 10 };
static ucontext_t scheduler, coroutines[COROUTINES];
static int done[COROUTINES];

#define COROUTINE(n)                                                                                                   \
    NOINLINE void *block_of_##n(size_t size) { return NEW(size); }                                                     \
    NOINLINE void body_##n(void) {                                                                                     \
        for (int turn = 0; turn < TURNS; turn++) {                                                                     \
            void *block = block_of_##n(500 + n);                                                                       \
            swapcontext(&coroutines[n], &scheduler);                                                                   \
            FREE(block, 500 + n);                                                                                      \
        }                                                                                                              \
        done[n] = 1;                                                                                                   \
        swapcontext(&coroutines[n], &scheduler);                                                                       \
    }
COROUTINE(0) COROUTINE(1) COROUTINE(2) COROUTINE(3) COROUTINE(4) COROUTINE(5) COROUTINE(6) COROUTINE(7)

int main(void) {
    void (*bodies[])(void) = {body_0, body_1, body_2, body_3, body_4, body_5, body_6, body_7};
    void *stacks[COROUTINES];
    for (int n = 0; n < COROUTINES; n++) {
        stacks[n] = NEW(STACK);
        MUST(getcontext(&coroutines[n]) == 0);
        coroutines[n].uc_stack.ss_sp = stacks[n];
        coroutines[n].uc_stack.ss_size = STACK;
        coroutines[n].uc_link = &scheduler;
        makecontext(&coroutines[n], bodies[n], 0);
    }
    int running = COROUTINES;
    while (running) {
        running = 0;
        for (int n = 0; n < COROUTINES; n++) {
            if (done[n]) continue;
            swapcontext(&scheduler, &coroutines[n]);
            running++;
        }
    }
    for (int n = 0; n < COROUTINES; n++) {
        FREE(stacks[n], STACK);
        say("truth stack %d block_of_%d body_%d", 500 + n, n, n);
        say("truth function body_%d %d %d", n, TURNS, TURNS * (500 + n));
    }
    say_truth("total");
    return 0;
}
