// A seeded random walk over malloc, calloc, realloc, the aligned family and free, with threads.
// Arguments: steps in thousands; number of distinct sizes, 2000 if it is left out. Prints: allocations, bytes, frees, reallocs, live blocks, live bytes.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 512, THREADS = 3 };

struct totals { unsigned long allocs, bytes, frees, reallocs, live, live_bytes; };
struct walk { uint64_t seed; long steps; void *block[SLOTS]; size_t size[SLOTS]; struct totals totals; };

static size_t sizes = 2000;

static uint64_t next_random(struct walk *walk) {
    walk->seed ^= walk->seed << 13;
    walk->seed ^= walk->seed >> 7;
    walk->seed ^= walk->seed << 17;
    return walk->seed;
}

__attribute__((noinline)) static void *allocate(struct walk *walk, size_t size, int depth) {
    if (depth > 0) {
        void *block = allocate(walk, size, depth - 1);
        __asm__ volatile("" : : "r"(block) : "memory");
        return block;
    }
    void *block = NULL;
    switch (next_random(walk) % 6) {
    case 0: block = calloc(1, size); break;
    case 1: if (posix_memalign(&block, 64, size)) block = NULL; break;
    case 2: block = aligned_alloc(32, size); break;
    case 3: block = memalign(128, size); break;
    default: block = malloc(size);
    }
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

static void *run(void *argument) {
    struct walk *walk = argument;
    for (long i = 0; i < walk->steps; i++) {
        unsigned slot = next_random(walk) % SLOTS;
        size_t size = (next_random(walk) % sizes + 1) * (2000 / sizes);
        if (!walk->block[slot]) {
            walk->block[slot] = allocate(walk, size, (int)(next_random(walk) % 20));
            walk->totals.allocs++;
        } else if (next_random(walk) % 4 == 0) {
            walk->block[slot] = realloc(walk->block[slot], size);
            walk->totals.reallocs++;
            walk->totals.live_bytes -= walk->size[slot];
            walk->totals.live--;
        } else {
            free(walk->block[slot]);
            walk->block[slot] = NULL;
            walk->totals.frees++;
            walk->totals.live_bytes -= walk->size[slot];
            walk->totals.live--;
            continue;
        }
        walk->size[slot] = size;
        walk->totals.bytes += size;
        walk->totals.live_bytes += size;
        walk->totals.live++;
    }
    return NULL;
}

static struct walk walks[THREADS];

int main(int argc, char **argv) {
    long steps = (argc > 1 ? atol(argv[1]) : 10) * 1000 / THREADS;
    if (argc > 2 && atol(argv[2]) > 0 && atol(argv[2]) < 2000) sizes = (size_t)atol(argv[2]);
    pthread_t threads[THREADS];
    struct totals sum = {0};
    for (int i = 0; i < THREADS; i++) {
        walks[i].seed = 88172645463325252ULL + (uint64_t)i * 7919;
        walks[i].steps = steps;
    }
    for (int i = 1; i < THREADS; i++) pthread_create(&threads[i], NULL, run, &walks[i]);
    run(&walks[0]);
    for (int i = 1; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        struct totals *t = &walks[i].totals;
        sum.allocs += t->allocs; sum.bytes += t->bytes; sum.frees += t->frees;
        sum.reallocs += t->reallocs; sum.live += t->live; sum.live_bytes += t->live_bytes;
    }
    char line[200];
    int len = snprintf(line, sizeof line, "%lu %lu %lu %lu %lu %lu\n", sum.allocs, sum.bytes, sum.frees, sum.reallocs,
                       sum.live, sum.live_bytes);
    return write(1, line, (size_t)len) == len ? 0 : 1;
}
