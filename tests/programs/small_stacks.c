// Threads on the smallest stack the system allows (PTHREAD_STACK_MIN) allocate after having used a quarter of it.
#include "truth.h"
#include <limits.h>
#include <pthread.h>

NOINLINE void *on_small_stack(size_t size) { return NEW(size); }

static void *small(void *argument) {
    volatile char used[4096];
    memset((void *)used, 1, sizeof used);
    for (int i = 0; i < 200; i++) {
        void *block = on_small_stack(88);
        FREE(block, 88);
    }
    KEEP(used);
    return argument;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    MUST(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0);
    for (int i = 0; i < 30; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, &attributes, small, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    say("truth function on_small_stack 6000 528000");
    say_truth("own");
    return 0;
}
