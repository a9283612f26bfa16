// Forced unwinding: pthread_cancel and pthread_exit run every cleanup handler, from deep inside and out of a handler.
#include "truth.h"
#include <pthread.h>

static pthread_barrier_t ready;
static unsigned long cleaned;

NOINLINE void *guarded(size_t size) { return NEW(size); }

static void clean(void *block) {
    FREE(block, 60);
    void *last = guarded(61);
    FREE(last, 61);
    truth_add(&cleaned, 1);
}

#pragma GCC diagnostic ignored "-Winfinite-recursion" // its end is pthread_exit or a cancellation
NOINLINE void descend(int depth, int cancel) {
    void *block = guarded(60);
    pthread_cleanup_push(clean, block);
    if (depth > 0) {
        descend(depth - 1, cancel);
    } else if (cancel) {
        pthread_barrier_wait(&ready);
        for (;;) sleep(1);
    } else {
        pthread_exit((void *)5);
    }
    pthread_cleanup_pop(1);
}

static void *cancelled(void *argument) {
    descend(10, 1);
    return argument;
}
static void *exiting(void *argument) {
    descend(10, 0);
    return argument;
}

int main(void) {
    pthread_barrier_init(&ready, NULL, 2);
    int good = 0;
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        void *result = NULL;
        MUST(pthread_create(&thread, NULL, cancelled, NULL) == 0);
        pthread_barrier_wait(&ready);
        MUST(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        good += result == PTHREAD_CANCELED;
        MUST(pthread_create(&thread, NULL, exiting, NULL) == 0 && pthread_join(thread, &result) == 0);
        good += result == (void *)5;
    }
    say("ended as they should: %d, cleaned %lu", good, cleaned);
    say("truth function guarded %lu %lu", truth.allocs, truth.bytes);
    say("truth leaked guarded 0 0");
    say_truth("own");
    return 0;
}
