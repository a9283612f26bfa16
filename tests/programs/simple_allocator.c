// An allocator that signal handlers may interrupt and use at any moment: it takes blocks from a large mapping and never
// uses them again. Preloaded.
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

static char *base;
static size_t used;
enum { HEAD = 16 };
#define ROOM ((size_t)64 << 30)

static void *take(size_t align, size_t size) {
    if (!__atomic_load_n(&base, __ATOMIC_ACQUIRE)) {
        void *fresh = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char *none = NULL;
        if (!__atomic_compare_exchange_n(&base, &none, (char *)fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            munmap(fresh, ROOM);
    }
    size_t room = (size + align + HEAD + 15) & ~(size_t)15;
    size_t at = __atomic_fetch_add(&used, room, __ATOMIC_RELAXED);
    if (at + room > ROOM) return NULL;
    char *block = (char *)(((size_t)base + at + HEAD + align - 1) & ~(align - 1));
    ((size_t *)block)[-1] = size;
    return block;
}

void *malloc(size_t size) { return take(16, size); }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return take(16, count * size); }
void *realloc(void *old, size_t size) {
    void *block = take(16, size);
    if (old && block) {
        size_t before = ((size_t *)old)[-1];
        memcpy(block, old, before < size ? before : size);
    }
    return block;
}
void *memalign(size_t align, size_t size) { return take(align < 16 ? 16 : align, size); }
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) {
    *out = memalign(align, size);
    return 0;
}
size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] : 0; }
