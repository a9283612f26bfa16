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
