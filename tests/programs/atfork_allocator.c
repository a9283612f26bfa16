// An allocator of the program's own, for all of the process, that holds its lock over a fork as jemalloc's and
// PartitionAlloc's do: its handlers take the lock before the fork and give it back in the parent and in the child. Nobody
// may allocate in a child before they have run. The first argument is the number of forks, the second one of handlers that are
// registered beside them and do nothing; a child allocates, and exits.
#include "truth.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

static atomic_flag lock = ATOMIC_FLAG_INIT;
static char *arena, *next;
enum { ARENA = 64 << 20, HEADER = 16 };

static void acquire(void) {
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) usleep(100);
}
static void release(void) { atomic_flag_clear_explicit(&lock, memory_order_release); }

__attribute__((noinline)) void *malloc(size_t size) {
    acquire();
    if (!arena) next = arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *block = next + HEADER;
    *(size_t *)next = size;
    next = block + ((size + 15) & ~(size_t)15);
    release();
    return block;
}
// Blocks are never used again.
__attribute__((noinline)) void free(void *block) {
    if (!block) return;
    acquire();
    *((size_t *)block - 1) = 1;
    release();
}
__attribute__((noinline)) void *calloc(size_t count, size_t size) { return malloc(count * size); }
__attribute__((noinline)) void *realloc(void *block, size_t size) {
    char *moved = malloc(size);
    if (block) {
        size_t old = *(size_t *)((char *)block - HEADER);
        memcpy(moved, block, old < size ? old : size);
        free(block);
    }
    return moved;
}

static void nothing(void) {}

int main(int argc, char **argv) {
    MUST(argc > 2);
    MUST(pthread_atfork(acquire, release, release) == 0);
    for (int i = 0; i < atoi(argv[2]); i++) MUST(pthread_atfork(nothing, nothing, nothing) == 0);
    int made = 0;
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            for (int n = 0; n < 500; n++) {
                void *block = malloc(7777);
                KEEP(block);
                free(block);
            }
            exit(0);
        }
        int status = -1;
        MUST(waitpid(pid, &status, 0) == pid);
        made += status == 0;
    }
    for (int n = 0; n < 100; n++) free(malloc(6464));
    say("%d children have lived", made);
    return 0;
}
