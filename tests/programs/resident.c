// Memory of every kind, each with its truth in bytes, one line a kind: "name bytes". At "truth" the recorder looks; then the
// program gives back what glibc can give back, and says how much that was.
#include "truth.h"
#include "tracehound.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#define MIB (1UL << 20)
#define PAGE 4096UL

static char bss[8 * MIB];
static pthread_barrier_t ready, done;
static char *kept[10000];

static long status(const char *name) {
    char text[4096];
    FILE *file = fopen("/proc/self/status", "r");
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = 0;
    char *at = strstr(text, name);
    return at ? atol(at + strlen(name) + 1) * 1024 : -1;
}

static char *map(size_t bytes, int protection) {
    char *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

NOINLINE static void touch(volatile char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += PAGE)
        at[i] = 1;
}

NOINLINE static char *map_sparse(void) {
    char *at = map(100 * MIB, PROT_READ | PROT_WRITE);
    touch(at, 10 * MIB);
    return at;
}

NOINLINE static char *map_holes(void) {
    char *at = map(8 * MIB, PROT_READ | PROT_WRITE);
    touch(at, 8 * MIB);
    for (size_t i = 0; i < 8 * MIB; i += 2 * PAGE)
        madvise(at + i, PAGE, MADV_DONTNEED);
    return at;
}

NOINLINE static char *map_only_read(void) {
    volatile char *at = map(16 * MIB, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < 16 * MIB; i += PAGE)
        if (at[i])
            abort();
    return (char *)at;
}

static void *worker(void *argument) {
    char deep[MIB];
    touch(deep, sizeof deep);
    free(count_alloc(malloc(10), 10));
    KEEP(deep);
    pthread_barrier_wait(&ready);
    // Its stack pointer is seen by the recorder at its last call.
    pthread_barrier_wait(&done);
    return argument;
}

int main(int argc, char **argv) {
    int many = argc > 1 ? atoi(argv[1]) : 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    char *sparse = map_sparse(), *holes = map_holes(), *only_read = map_only_read();
    char *vast = map(1UL << 40, PROT_NONE);
    KEEP(sparse);
    KEEP(holes);
    KEEP(only_read);
    KEEP(vast);
    touch(bss, sizeof bss);
    int fd = memfd_create("truth", 0);
    if (ftruncate(fd, 6 * MIB))
        abort();
    char *shared = mmap(NULL, 6 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    touch(shared, 6 * MIB);
    pthread_barrier_init(&ready, NULL, 4);
    pthread_barrier_init(&done, NULL, 4);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, worker, NULL);
    pthread_barrier_wait(&ready);
    for (int i = 0; i < 10000; i++)
        memset(kept[i] = count_alloc(malloc(1000), 1000), 1, 1000);
    enum { BLOCKS = 320 };
    static char *freed[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        memset(freed[i] = malloc(64 * 1024), 1, 64 * 1024);
    char *pin = count_alloc(malloc(500), 500);
    memset(pin, 1, 500);
    for (int i = 0; i < BLOCKS; i++)
        free(freed[i]);
    char *untouched = count_alloc(malloc(32 * MIB), 32 * MIB);
    KEEP(untouched);
    for (int i = 0; i < many; i++)
        mprotect(map(2 * PAGE, PROT_READ | PROT_WRITE), PAGE, PROT_READ);
    TRACEHOUND(look, "truth");
    long before = status("RssAnon:");
    malloc_trim(0);
    long after = status("RssAnon:");
    printf("mappings %lu\n", 10 * MIB + 4 * MIB);
    printf("shared %lu\n", 6 * MIB);
    printf("stacks %lu\n", 3 * MIB);
    printf("bss %lu\n", 8 * MIB);
    printf("live %lu\n", 10000 * 1000UL + 500);
    printf("free %lu\n", BLOCKS * 64UL * 1024);
    printf("untouched %lu\n", 32 * MIB);
    printf("trimmed %ld\n", before - after);
    pthread_barrier_wait(&done);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
