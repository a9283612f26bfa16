// A library whose unwind information is on disk only: compiled with -g -fno-asynchronous-unwind-tables.
#include <string.h>

__attribute__((noinline)) long hidden_inner(long (*function)(void *), void *argument, int bytes) {
    char room[200];
    memset(room, bytes, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory");
    return function(argument) + room[3];
}

__attribute__((noinline)) long hidden_dynamic(long (*function)(void *), void *argument, int bytes) {
    volatile char room[bytes];
    room[0] = 1;
    return hidden_inner(function, argument, bytes) + room[0];
}

long hidden_call(long (*function)(void *), void *argument, int bytes) {
    long result = bytes % 2 ? hidden_inner(function, argument, bytes) : hidden_dynamic(function, argument, bytes);
    __asm__ volatile("" : "+r"(result));
    return result;
}

// Without any unwind information, behind functions that have some.
long hidden_bare(long (*)(void *), void *);
__asm__(".section .text.behind, \"ax\", @progbits\n"
        ".globl hidden_bare\n"
        ".type hidden_bare, @function\n"
        "hidden_bare:\n"
        " push %rbp\n"
        " mov %rsp, %rbp\n"
        " mov %rdi, %rax\n"
        " mov %rsi, %rdi\n"
        " call *%rax\n"
        " pop %rbp\n"
        " ret\n"
        ".size hidden_bare, .-hidden_bare\n"
        ".text\n");
