// Threads make their first allocations when there is no address space left: their blocks come from what was freed before.
// States the blocks that they got, and how many threads got all of theirs. With the argument "all" there is no limit.
#include "truth.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

enum { THREADS = 1000, BLOCKS = 100, STACK = 64 << 10, STORE = 8 << 20 };

static int go, done;
static unsigned long made, whole;

static void *thread(void *unused) {
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE)) usleep(1000);
    int count = 0;
    for (int i = 0; i < BLOCKS; i++) {
        void *block = malloc(24);
        KEEP(block);
        count += block != NULL;
        free(block);
    }
    truth_add(&made, (unsigned long)count);
    truth_add(&whole, count == BLOCKS);
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
    return unused;
}

int main(int argc, char **argv) {
    // One arena for all, which keeps what is freed.
    MUST(mallopt(M_ARENA_MAX, 1) && mallopt(M_TRIM_THRESHOLD, 1 << 30) && mallopt(M_MMAP_THRESHOLD, 1 << 30));
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], &attributes, thread, NULL) == 0);
    void *store = malloc(STORE);
    KEEP(store);
    free(store);
    struct rlimit limit, before;
    MUST(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = 4096;
    if (argc < 2 || strcmp(argv[1], "all")) MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < THREADS) usleep(1000);
    MUST(setrlimit(RLIMIT_AS, &before) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    say("made %lu, all by %lu", made, whole);
    return 0;
}
