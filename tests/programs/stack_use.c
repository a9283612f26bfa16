// How many bytes of stack malloc and free take below their caller: both run on a painted stack of their own, a thousand
// times, so that nothing of it is a thread's first event. States the bytes that lost their paint.
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define BYTES (256 << 10)
#define PAINT 0xa5

static unsigned char stack[BYTES] __attribute__((aligned(4096)));
static ucontext_t back, there;

static __attribute__((noinline)) void pairs(void) {
    for (int i = 0; i < 1000; i++) {
        void *volatile block = malloc(24);
        free(block);
    }
}

static void painted(void) {
    // The first events are new stacks, which are looked at on a stack of the recorder's or deeper on this one.
    pairs();
    // Up to the stack pointer, without a call that would need stack itself.
    unsigned char *end;
#ifdef __aarch64__
    __asm__ volatile("mov %0, sp" : "=r"(end));
#else
    __asm__ volatile("mov %%rsp, %0" : "=r"(end));
#endif
    for (volatile unsigned char *at = stack; at < end; at++) *at = PAINT;
    pairs();
}

int main(void) {
    if (getcontext(&there)) return 1;
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = BYTES;
    there.uc_link = &back;
    makecontext(&there, painted, 0);
    if (swapcontext(&back, &there)) return 1;
    size_t clean = 0;
    while (clean < BYTES && stack[clean] == PAINT) clean++;
    printf("%zu\n", BYTES - clean);
    return 0;
}
