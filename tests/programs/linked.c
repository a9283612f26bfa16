// Eight threads that keep books of what they allocate by each function of the family, a forked child, an exit handler and
// a destructor. What the C library takes for itself comes from other functions.
#include "truth.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 8, ROUNDS = 2000 };

// What a function has allocated.
struct book {
    unsigned long count, bytes;
};
static struct book malloced, calloced, resizes, aligned, on_pages;

static void *noted(struct book *book, void *block, size_t size) {
    MUST(block);
    KEEP(block);
    truth_add(&book->count, 1);
    truth_add(&book->bytes, size);
    return block;
}

NOINLINE void *by_malloc(size_t size) { return noted(&malloced, malloc(size), size); }
NOINLINE void *by_calloc(size_t size) { return noted(&calloced, calloc(1, size), size); }
NOINLINE void *by_realloc(void *block, size_t size) { return noted(&resizes, realloc(block, size), size); }
NOINLINE void *by_aligned_alloc(size_t size) { return noted(&aligned, aligned_alloc(64, size), size); }
NOINLINE void *by_posix_memalign(size_t size) {
    void *block = NULL;
    MUST(posix_memalign(&block, 4096, size) == 0);
    return noted(&on_pages, block, size);
}
NOINLINE void keep(size_t size) { KEEP(by_malloc(size)); }

NOINLINE void *work(void *argument) {
    size_t number = (size_t)argument;
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t size = 100 + 10 * number + i % 7;
        void *blocks[] = {by_malloc(size), by_calloc(size), by_aligned_alloc(size), by_posix_memalign(size)};
        blocks[0] = by_realloc(blocks[0], size + 5000);
        for (int at = 0; at < 4; at++) free(blocks[at]);
        if (i % 100 == 0) keep(555);
    }
    return NULL;
}

NOINLINE void at_the_end(void) { free(by_malloc(777)); }
__attribute__((destructor)) NOINLINE void at_the_very_end(void) { free(by_malloc(888)); }

int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        free(by_malloc(3333));
        _exit(7);
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    MUST(atexit(at_the_end) == 0);
    // The library's own call.
    char *text = strdup("twelve bytes");
    KEEP(text);
    free(text);
    say("truth function by_malloc %lu %lu", malloced.count + 2, malloced.bytes + 777 + 888);
    say("truth function by_calloc %lu %lu", calloced.count, calloced.bytes);
    say("truth function by_realloc %lu %lu", resizes.count, resizes.bytes);
    say("truth function by_aligned_alloc %lu %lu", aligned.count, aligned.bytes);
    say("truth function by_posix_memalign %lu %lu", on_pages.count, on_pages.bytes);
    say("truth leaked work %d %d", THREADS * ROUNDS / 100, THREADS * ROUNDS / 100 * 555);
    say("truth frees work %d", THREADS * ROUNDS * 4);
    say("truth frees at_the_end 1");
    say("truth frees at_the_very_end 1");
    say("truth stack 555 by_malloc keep work start_thread");
    say("truth callers 13 main");
    say("truth size 3333 0");
    say("truth threads %d", THREADS + 1);
    return 0;
}
