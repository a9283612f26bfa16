// An executable with a malloc of its own, all of it in one file: where the compiler sees both, it aligns the stack only as far
// as this malloc needs. Allocates for five seconds, and ends with the status 5.
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Alignas(16) char heap[64 << 20];
static size_t top, freed;

__attribute__((noinline)) void *malloc(size_t size) {
    size_t bytes = (size + 31) & ~(size_t)15;
    size_t at = __atomic_fetch_add(&top, bytes, __ATOMIC_RELAXED);
    if (at + bytes > sizeof heap) return NULL;
    memcpy(heap + at, &bytes, sizeof bytes);
    return heap + at + 16;
}

__attribute__((noinline)) void free(void *block) {
    if (block) __atomic_fetch_add(&freed, 1, __ATOMIC_RELAXED);
}

void *calloc(size_t count, size_t size) {
    return malloc(count * size); // Nothing is handed out twice.
}

void *realloc(void *block, size_t size) {
    char *other = malloc(size);
    if (!other || !block) return other;
    size_t had;
    memcpy(&had, (char *)block - 16, sizeof had);
    return memcpy(other, block, had - 16 < size ? had - 16 : size);
}

__attribute__((noinline)) static void work(unsigned long number) {
    void *volatile block = malloc(100 + number % 7);
    free(block);
}

int main(void) {
    printf("ready\n");
    fflush(stdout);
    for (unsigned long number = 0; number < 1000; number++) {
        work(number);
        usleep(5000);
    }
    return 5;
}
