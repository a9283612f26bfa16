// Threads that change their request context at random, and say of each block in which one it was allocated and freed.
// Sizes are unique. A signal handler, a fork, a stop of recording and a full chunk come in between.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../../preload/include/tracehound.h"

enum { THREADS = 4, BLOCKS = 3000 };

static atomic_int next_size = 5000;
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void set(uint64_t id) {
    if (tracehound_context_set) tracehound_context_set(id);
}

static uint64_t get(void) { return tracehound_context_get ? tracehound_context_get() : 0; }

static uint64_t chance(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void *work(void *number) {
    static struct { int size; uint64_t alloc, free; } blocks[THREADS][BLOCKS];
    uint64_t state = 88172645463325252ULL + (uintptr_t)number * 977, own = 0;
    for (int i = 0; i < BLOCKS; i++) {
        if (chance(&state) % 3 == 0) set(own = chance(&state) % 7 ? 100 + chance(&state) % 20 : 0);
        // A change that no event follows leaves nothing.
        if (chance(&state) % 5 == 0) set(999), set(own);
        int size = atomic_fetch_add(&next_size, 1);
        void *block = malloc(size);
        memset(block, 1, 1);
        blocks[(uintptr_t)number][i].size = size;
        blocks[(uintptr_t)number][i].alloc = own;
        if (chance(&state) % 2) set(own = 200 + chance(&state) % 3);
        if (chance(&state) % 4 == 0) block = realloc(block, blocks[(uintptr_t)number][i].size = size + 100000);
        blocks[(uintptr_t)number][i].free = own;
        free(block);
    }
    pthread_mutex_lock(&printing);
    for (int i = 0; i < BLOCKS; i++) {
        int size = blocks[(uintptr_t)number][i].size;
        // A realloc's new block is of the context in which it was moved.
        uint64_t alloc = size >= 100000 ? blocks[(uintptr_t)number][i].free : blocks[(uintptr_t)number][i].alloc;
        uint64_t free = blocks[(uintptr_t)number][i].free;
        printf("block %d %llu %llu\n", size, (unsigned long long)alloc, (unsigned long long)free);
    }
    pthread_mutex_unlock(&printing);
    return NULL;
}

static void on_signal(int signal) {
    (void)signal;
    uint64_t before = get();
    set(UINT64_MAX - 1);
    free(malloc(4001));
    set(before);
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    if (tracehound_context_name) {
        tracehound_context_name(101, "GET /items");
        tracehound_context_name(102, "wrong");
        tracehound_context_name(102, "POST /items");
    }
    free(malloc(4000));
    printf("block 4000 0 0\n");
    set(77);
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    printf("block 4001 %llu %llu\n", (unsigned long long)UINT64_MAX - 1, (unsigned long long)UINT64_MAX - 1);
    free(malloc(4002));
    printf("block 4002 77 77\n");
    if (tracehound_stop) tracehound_stop();
    set(78);
    free(malloc(4003));
    if (tracehound_start) tracehound_start();
    void *kept = malloc(4004);
    printf("block 4004 78 none\n");
    if (get() != (tracehound_context_get ? 78 : 0)) return 3;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        // The child goes on in the context of its parent.
        void *block = malloc(4005);
        memset(block, 1, 1);
        _exit(get() == (tracehound_context_get ? 78 : 0) && kept ? 0 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    set(0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return status != 0;
}
