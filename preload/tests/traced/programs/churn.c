// THREADS threads make STEPS random allocations and frees each, ROUNDS times one after another. Prints what they did,
// without allocating for it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long steps;
static unsigned long allocs, bytes, frees, reallocs;

static void *work(void *seed_of) {
    unsigned seed = (unsigned)(long)seed_of * 77 + 1;
    void *blocks[64] = {0};
    unsigned long my_allocs = 0, my_bytes = 0, my_frees = 0, my_reallocs = 0;
    for (long i = 0; i < steps; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned at = seed >> 16 & 63, size = 1 + (seed >> 20 & 511);
        if (blocks[at] && (seed & 64)) {
            blocks[at] = realloc(blocks[at], size);
            my_allocs++, my_bytes += size, my_frees++, my_reallocs++;
            continue;
        }
        if (blocks[at]) free(blocks[at]), my_frees++;
        blocks[at] = malloc(size);
        my_allocs++, my_bytes += size;
    }
    for (int i = 0; i < 64; i++)
        if (blocks[i]) free(blocks[i]), my_frees++;
    __atomic_fetch_add(&allocs, my_allocs, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bytes, my_bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&frees, my_frees, __ATOMIC_RELAXED);
    __atomic_fetch_add(&reallocs, my_reallocs, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 1, rounds = argc > 3 ? atol(argv[3]) : 1;
    steps = argc > 2 ? atol(argv[2]) : 1000;
    static pthread_t all[1024];
    static char stdout_buffer[4096];
    setvbuf(stdout, stdout_buffer, _IOFBF, sizeof stdout_buffer);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < threads; i++)
            if (pthread_create(&all[i], NULL, work, (void *)(round * threads + i))) abort();
        for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
    }
    printf("allocs %lu\nbytes %lu\nfrees %lu\nreallocs %lu\n", allocs, bytes, frees, reallocs);
    return 0;
}
