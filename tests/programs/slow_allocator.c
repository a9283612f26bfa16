// An allocator that signal handlers may enter at any moment, and that hands the block which was freed last out again, if the
// size fits. A realloc to 100000 bytes and a few raises SIGUSR1 before it gives the old block back, one to 200000 and a few
// behind that. A library, to be preloaded.
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { HEAD = 16 };
#define ROOM ((size_t)4 << 30)

static char *base;
static size_t used;
static char *last;

static size_t *size_of(void *block) { return (size_t *)((char *)block - HEAD); }

static void *take(size_t size) {
    if (!__atomic_load_n(&base, __ATOMIC_ACQUIRE)) {
        void *fresh = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char *none = NULL;
        if (!__atomic_compare_exchange_n(&base, &none, (char *)fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            munmap(fresh, ROOM);
    }
    size_t room = (size + HEAD + 15) & ~(size_t)15;
    char *block = __atomic_exchange_n(&last, NULL, __ATOMIC_ACQ_REL);
    // The word before the size says how much room there is.
    if (!block || size_of(block)[1] < room) {
        block = base + __atomic_fetch_add(&used, room, __ATOMIC_RELAXED) + HEAD;
        size_of(block)[1] = room;
    }
    *size_of(block) = size;
    return block;
}

static void give_back(void *block) {
    if (block) __atomic_store_n(&last, (char *)block, __ATOMIC_RELEASE);
}

void *malloc(size_t size) { return take(size); }
void free(void *block) { give_back(block); }

void *calloc(size_t count, size_t size) {
    void *block = take(count * size);
    memset(block, 0, count * size);
    return block;
}

void *realloc(void *old, size_t size) {
    size_t before = old ? *size_of(old) : 0;
    // By the inner names: these are no calls of the program's.
    char *block = take(size);
    if (old) memcpy(block, old, before < size ? before : size);
    if (size / 100 == 1000) raise(SIGUSR1);
    give_back(old);
    if (size / 100 == 2000) raise(SIGUSR1);
    return block;
}

size_t malloc_usable_size(void *block) { return block ? *size_of(block) : 0; }
