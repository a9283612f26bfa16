// THREADS threads alive at once, on stacks of 64 KiB, make ROUNDS times PAIRS allocations and frees each, all threads at the
// same time. Prints what they did, without allocating for it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long rounds, pairs;
static pthread_barrier_t together;
static unsigned long allocs, bytes;

static void *work(void *unused) {
    unsigned long my_allocs = 0, my_bytes = 0;
    for (long round = 0; round < rounds; round++) {
        pthread_barrier_wait(&together);
        for (long i = 0; i < pairs; i++) {
            size_t size = 16 + (round + i) % 512;
            void *block = malloc(size);
            __asm__ volatile("" : : "r"(block) : "memory");
            free(block);
            my_allocs++, my_bytes += size;
        }
    }
    __atomic_fetch_add(&allocs, my_allocs, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bytes, my_bytes, __ATOMIC_RELAXED);
    return unused;
}

int main(int argc, char **argv) {
    static pthread_t all[1 << 16];
    static char stdout_buffer[4096];
    setvbuf(stdout, stdout_buffer, _IOFBF, sizeof stdout_buffer);
    long threads = argc > 1 ? atol(argv[1]) : 1;
    rounds = argc > 2 ? atol(argv[2]) : 1;
    pairs = argc > 3 ? atol(argv[3]) : 1;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&together, NULL, threads);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&all[i], &small, work, NULL)) {
            printf("only %ld threads\n", i);
            fflush(stdout);
            _Exit(3);
        }
    for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("allocs %lu\nbytes %lu\nfrees %lu\n", allocs, bytes, allocs);
    return 0;
}
