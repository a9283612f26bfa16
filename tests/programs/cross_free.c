// Blocks wander between threads: each is freed by whoever comes next, so addresses are reused across threads at once.
// Any mistake in the order shows as a block that is allocated twice, or freed before it is allocated.
#include "truth.h"
#include <pthread.h>

enum { THREADS = 4, STEPS = 12000, SLOTS = 32 };
struct slot { void *block; size_t size; };
static struct slot slots[SLOTS];
static pthread_mutex_t locks[SLOTS];

NOINLINE void *wandering(size_t size) { return NEW(size); }

static void *work(void *argument) {
    unsigned long seed = 99 + (unsigned long)argument;
    for (int i = 0; i < STEPS; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        unsigned at = (seed >> 33) % SLOTS;
        size_t size = 16 + (seed >> 60) * 8;
        void *mine = wandering(size);
        pthread_mutex_lock(&locks[at]);
        struct slot found = slots[at];
        slots[at] = (struct slot){mine, size};
        pthread_mutex_unlock(&locks[at]);
        if (found.block) FREE(found.block, found.size);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < SLOTS; i++) pthread_mutex_init(&locks[i], NULL);
    for (long i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].block) FREE(slots[i].block, slots[i].size);
    }
    say("truth function wandering %d %lu", THREADS * STEPS, truth.bytes);
    say("truth leaked wandering 0 0");
    say_truth("own");
    return 0;
}
