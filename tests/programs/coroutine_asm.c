// Coroutines switched by hand-made assembly without any unwind information, on mapped stacks, in several threads.
#include "truth.h"
#include <pthread.h>
#include <sys/mman.h>

#ifdef __x86_64__
enum { TURNS = 1000, STACK = 64 << 10 };

void switch_stack(void **save, void *load);
__asm__(".text\n.globl switch_stack\n.type switch_stack,@function\nswitch_stack:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size switch_stack,.-switch_stack\n");

struct pair { void *outside, *inside; };
static __thread struct pair pair;

NOINLINE void *inside_block(size_t size) { return NEW(size); }
NOINLINE void *outside_block(size_t size) { return NEW(size); }

NOINLINE void coroutine_body(void) {
    for (;;) {
        void *block = inside_block(601);
        switch_stack(&pair.inside, pair.outside);
        FREE(block, 601);
        switch_stack(&pair.inside, pair.outside);
    }
}

NOINLINE void resume(void) { switch_stack(&pair.outside, pair.inside); }

static void *run(void *argument) {
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(stack != MAP_FAILED);
    void **top = (void **)(stack + STACK - 64);
    // The address that coroutine_body would return to, then its entry, then six registers.
    *--top = NULL;
    *--top = (void *)coroutine_body;
    for (int i = 0; i < 6; i++) *--top = NULL;
    pair.inside = top;
    for (int turn = 0; turn < TURNS; turn++) {
        resume();
        void *block = outside_block(602);
        FREE(block, 602);
        resume();
    }
    munmap(stack, STACK);
    return argument;
}

int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, run, NULL) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    say("truth function inside_block 3000 1803000");
    say("truth function outside_block 3000 1806000");
    say("truth stack 601 inside_block coroutine_body");
    say("truth stack 602 outside_block run");
    say_truth("own");
    return 0;
}
#else
int main(void) { return 0; }
#endif
