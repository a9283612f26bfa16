// 48 threads that do nothing but allocate and free, with deep and shallow stacks; how large the process became goes to
// the file "peak".
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

enum { THREADS = 48, STEPS = 1000 };
static pthread_barrier_t start;

NOINLINE void *storm_block(size_t size, int depth) {
    void *block = depth ? storm_block(size, depth - 1) : NEW(size);
    KEEP(block);
    return block;
}

static void *storm(void *argument) {
    size_t size = (size_t)argument;
    pthread_barrier_wait(&start);
    for (int i = 0; i < STEPS; i++) {
        void *block = storm_block(size, i % 17);
        FREE(block, size);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, storm, (void *)(i + 24)) == 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    unsigned long bytes = truth.bytes;
    // The first thread is one of those that allocate: glibc's pthread_create does that for it, musl's does not.
    void *own = NEW(7);
    FREE(own, 7);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    char text[64];
    int len = snprintf(text, sizeof text, "%ld\n", usage.ru_maxrss);
    int fd = open("peak", O_CREAT | O_WRONLY, 0600);
    MUST(write(fd, text, (size_t)len) == len);
    say("truth function storm_block %d %lu", THREADS * STEPS, bytes);
    say("truth threads %d", THREADS + 1);
    say_truth("own");
    return 0;
}
