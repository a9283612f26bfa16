// Calls malloc, calloc, realloc and free with a stack pointer that is 8 bytes off what the ABI has, as machine code written by
// hand may.
#include "truth.h"

static unsigned long call(void *function, unsigned long first, unsigned long second) {
    unsigned long result;
    __asm__ volatile("mov %%rsp, %%rbx\n and $-16, %%rsp\n sub $136, %%rsp\n call *%1\n mov %%rbx, %%rsp"
                     : "=a"(result), "+r"(function), "+D"(first), "+S"(second)
                     :
                     : "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
                       "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return result;
}

int main(void) {
    for (unsigned long number = 0; number < 1000; number++) {
        unsigned long block = call(malloc, 100 + number, 0);
        unsigned long other = call(calloc, 3, 100);
        MUST(block && other);
        block = call(realloc, block, 2000);
        call(free, block, 0);
        call(free, other, 0);
    }
    return 0;
}
