// THREADS threads make PAIRS allocations and frees each, one after another, then nothing for longer than the recorder leaves a
// quiet thread its chunk, then as many again, all at the same time. Prints what they did, without allocating for it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long pairs;
static pthread_barrier_t together;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static unsigned long allocs, bytes;

static void make(unsigned long *count, unsigned long *sum) {
    for (long i = 0; i < pairs; i++) {
        void *block = malloc(16 + i % 512);
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
        *count += 1, *sum += 16 + i % 512;
    }
}

static void *work(void *unused) {
    unsigned long my_allocs = 0, my_bytes = 0;
    pthread_mutex_lock(&turn);
    make(&my_allocs, &my_bytes);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&together);
    usleep(2500000);
    make(&my_allocs, &my_bytes);
    __atomic_fetch_add(&allocs, my_allocs, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bytes, my_bytes, __ATOMIC_RELAXED);
    return unused;
}

int main(int argc, char **argv) {
    static pthread_t all[1024];
    static char stdout_buffer[4096];
    setvbuf(stdout, stdout_buffer, _IOFBF, sizeof stdout_buffer);
    long threads = argc > 1 ? atol(argv[1]) : 1;
    pairs = argc > 2 ? atol(argv[2]) : 1;
    pthread_barrier_init(&together, NULL, threads);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&all[i], NULL, work, NULL)) abort();
    for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("allocs %lu\nbytes %lu\nfrees %lu\n", allocs, bytes, allocs);
    return 0;
}
