// The first thread ends by pthread_exit; a detached thread works on and its end is the end of the process.
#include "truth.h"
#include <pthread.h>

static pthread_t first;

NOINLINE void *after_first(size_t size) { return NEW(size); }

static void *detached(void *argument) {
    pthread_join(first, NULL);
    for (int i = 0; i < 500; i++) {
        void *block = after_first(150);
        FREE(block, 150);
    }
    void *kept = after_first(151);
    KEEP(kept);
    say("truth function after_first 501 75151");
    say("truth leaked after_first 1 151");
    say_truth("own");
    return argument;
}

int main(void) {
    first = pthread_self();
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    MUST(pthread_create(&thread, &attributes, detached, NULL) == 0);
    pthread_exit(NULL);
}
