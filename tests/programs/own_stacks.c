// Threads that allocate nothing, with stacks of a size of their own, and memory that the program takes by sbrk beside its heap:
// how many bytes of each are touched when the page tables are looked at.
#include "truth.h"
#include <alloca.h>
#include <pthread.h>
#include <tracehound.h>

enum { THREADS = 4 };
static const long STACK = 64L << 20, TOUCHED = 3L << 20, BREAK = 10L << 20;
static pthread_barrier_t barrier;

static void *touch(void *unused) {
    volatile char *space = alloca(TOUCHED);
    for (long at = 0; at < TOUCHED; at += 4096) space[at] = 1;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(void) {
    char *own = sbrk(BREAK);
    MUST(own != (void *)-1);
    memset(own, 1, (size_t)BREAK);
    void *block = malloc(100000);
    memset(block, 1, 100000);
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, (size_t)STACK) == 0);
    MUST(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(threads + i, &attributes, touch, NULL) == 0);
    pthread_barrier_wait(&barrier);
    TRACEHOUND(look, "truth");
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("stacks %ld\nmappings %ld\n", THREADS * TOUCHED, BREAK);
    free(block);
    return 0;
}
