// Thread-specific data whose destructors allocate, free and set themselves again, until the last round.
#include "truth.h"
#include <limits.h>
#include <pthread.h>

static pthread_key_t keys[20];
static unsigned long rounds;

NOINLINE void *in_destructor(size_t size) { return NEW(size); }
NOINLINE void *in_thread(size_t size) { return NEW(size); }

static void destructor(void *block) {
    FREE(block, 64);
    void *next = in_destructor(64);
    truth_add(&rounds, 1);
    // What is set in the last round is never destroyed.
    pthread_setspecific(keys[0], next);
}

static void plain_destructor(void *block) {
    void *other = in_destructor(2000);
    FREE(other, 2000);
    FREE(block, 32);
}

static void *thread_main(void *argument) {
    pthread_setspecific(keys[0], in_thread(64));
    for (int i = 1; i < 20; i++) pthread_setspecific(keys[i], in_thread(32));
    return argument;
}

int main(void) {
    MUST(pthread_key_create(&keys[0], destructor) == 0);
    for (int i = 1; i < 20; i++) MUST(pthread_key_create(&keys[i], plain_destructor) == 0);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, thread_main, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    MUST(rounds == 50 * PTHREAD_DESTRUCTOR_ITERATIONS);
    say("truth function in_thread %d %d", 50 * 20, 50 * (64 + 19 * 32));
    say("truth function in_destructor %lu %lu", rounds + 50 * 19, rounds * 64 + 50 * 19 * 2000);
    say("truth leaked in_destructor 50 3200");
    say_truth("own");
    return 0;
}
