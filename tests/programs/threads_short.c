// Thousands of short threads, at most eight at a time, each with a few blocks; every other block is freed by main.
#include "truth.h"
#include <pthread.h>

enum { ROUNDS = 375, AT_ONCE = 8 };

NOINLINE void *short_block(size_t size) { return NEW(size); }

static void *brief(void *argument) {
    size_t size = (size_t)argument;
    void *first = short_block(size);
    void *second = short_block(size + 1);
    FREE(first, size);
    return second;
}

int main(void) {
    pthread_t threads[AT_ONCE];
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < AT_ONCE; i++) MUST(pthread_create(&threads[i], NULL, brief, (void *)(100 + i * 10)) == 0);
        for (size_t i = 0; i < AT_ONCE; i++) {
            void *block = NULL;
            MUST(pthread_join(threads[i], &block) == 0 && block);
            if (i % 2) FREE(block, 101 + i * 10);
        }
    }
    say("truth function short_block %d %lu", 2 * ROUNDS * AT_ONCE, truth.bytes);
    say("truth leaked short_block %lu %lu", truth.live, truth.live_bytes);
    say("truth threads %d", ROUNDS * AT_ONCE + 1);
    say_truth("own");
    return 0;
}
