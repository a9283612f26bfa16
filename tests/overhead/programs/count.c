/* Preloaded to count what a workload asks of its allocator; writes "allocs N frees N" to the file in COUNT_OUTPUT.
 * A realloc that moves a block or changes its size is a free and an alloc. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_ulong allocs, frees;

static void *count_alloc(void *block)
{
    if (block)
        atomic_fetch_add_explicit(&allocs, 1, memory_order_relaxed);
    return block;
}

void *malloc(size_t size) { return count_alloc(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return count_alloc(__libc_calloc(count, size)); }
void *memalign(size_t alignment, size_t size) { return count_alloc(__libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size)
{
    void *found = memalign(alignment, size);
    if (!found)
        return ENOMEM;
    *block = found;
    return 0;
}

void free(void *block)
{
    if (block)
        atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
    __libc_free(block);
}

void *realloc(void *block, size_t size)
{
    void *moved = __libc_realloc(block, size);
    if (block && (moved || !size))
        atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
    return count_alloc(moved);
}

__attribute__((destructor)) static void write_counts(void)
{
    char line[96];
    const char *path = getenv("COUNT_OUTPUT");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    int len = snprintf(line, sizeof line, "allocs %lu frees %lu\n", atomic_load(&allocs), atomic_load(&frees));
    if (write(fd, line, (size_t)len) != len)
        _exit(1);
    close(fd);
}
