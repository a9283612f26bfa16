// Pages of the kinds that the kernel treats in its own way, each with its truth in bytes, one line a kind: "name bytes".
// Huge pages of which a small part was touched, pages offered back with MADV_FREE, pages that are only read after a fork by
// the child, and pages moved out to swap where there is some, of a mapping and of half a block. FILTER=1: behind a filter of
// system calls that kills for mincore and ioctl. FORK=1: a child, which touches half of what it inherits, writes the same
// lines instead.
#include "truth.h"
#include "tracehound.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MIB (1UL << 20)
#define PAGE 4096UL
#define HUGE (2 * MIB)

static long field(const char *file, const char *name) {
    char text[1 << 14];
    FILE *stream = fopen(file, "r");
    size_t len = fread(text, 1, sizeof text - 1, stream);
    fclose(stream);
    text[len] = 0;
    char *at = strstr(text, name);
    return at ? atol(at + strlen(name) + 1) * 1024 : 0;
}

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

NOINLINE static void touch(volatile char *at, size_t bytes, size_t step) {
    for (size_t i = 0; i < bytes; i += step)
        at[i] = 1;
}

NOINLINE static char *map_huge(void) {
    char *at = map(9 * HUGE);
    at = (char *)(((size_t)at + HUGE - 1) & ~(HUGE - 1));
    madvise(at, 8 * HUGE, MADV_HUGEPAGE);
    touch(at, 8 * HUGE, HUGE);
    return at;
}

NOINLINE static char *map_lazy(void) {
    char *at = map(12 * MIB);
    madvise(at, 12 * MIB, MADV_NOHUGEPAGE);
    touch(at, 12 * MIB, PAGE);
    madvise(at, 12 * MIB, MADV_FREE);
    return at;
}

static void move_out(char *at, size_t bytes) {
#ifdef MADV_PAGEOUT
    madvise((char *)((size_t)at & ~(PAGE - 1)), bytes, MADV_PAGEOUT);
#endif
}

NOINLINE static char *map_moved_out(void) {
    char *at = map(10 * MIB);
    madvise(at, 10 * MIB, MADV_NOHUGEPAGE);
    touch(at, 10 * MIB, PAGE);
    move_out(at, 10 * MIB);
    return at;
}

// Bytes of whole pages of a range that are in swap: bit 62 of their entries.
static size_t bytes_in_swap(const char *at, size_t bytes) {
    FILE *stream = fopen("/proc/self/pagemap", "r");
    size_t pages = 0;
    fseek(stream, (long)((size_t)at / PAGE * sizeof(unsigned long)), SEEK_SET);
    for (size_t i = 0; i < bytes / PAGE; i++) {
        unsigned long entry = 0;
        if (fread(&entry, sizeof entry, 1, stream) == 1)
            pages += entry >> 62 & 1;
    }
    fclose(stream);
    return pages * PAGE;
}

static void forbid(void) {
#define KILL_FOR(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL_FOR(SYS_mincore),
        KILL_FOR(SYS_ioctl),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    char *kept = count_alloc(malloc(6 * MIB), 6 * MIB);
    touch(kept, 6 * MIB, PAGE);
    madvise((char *)((size_t)kept & ~(PAGE - 1)), 6 * MIB, MADV_NOHUGEPAGE);
    char *huge = map_huge(), *lazy = map_lazy(), *moved_out = map_moved_out();
    move_out(kept, 3 * MIB);
    KEEP(huge);
    KEEP(lazy);
    KEEP(moved_out);
    if (getenv("FORK")) {
        pid_t child = fork();
        if (child) {
            waitpid(child, NULL, 0);
            return 0;
        }
        touch(kept, 3 * MIB, PAGE);
        free(count_alloc(malloc(100), 100));
    }
    if (getenv("FILTER"))
        forbid();
    long huge_pages = field("/proc/self/smaps_rollup", "AnonHugePages:");
    long swapped = field("/proc/self/smaps_rollup", "\nSwap:");
    size_t mapping_in_swap = bytes_in_swap(moved_out, 10 * MIB), block_in_swap = bytes_in_swap(kept, 6 * MIB);
    TRACEHOUND(look, "truth");
    printf("pid %d\n", getpid());
    printf("anonymous %ld\n", field("/proc/self/status", "RssAnon:"));
    printf("huge %ld\n", huge_pages);
    printf("lazy %ld\n", field("/proc/self/smaps_rollup", "LazyFree:"));
    printf("swapped %ld\n", swapped);
    printf("mappings %lu\n", (huge_pages ? 8 * HUGE : 8 * PAGE) + 12 * MIB + 10 * MIB - mapping_in_swap);
    printf("live %lu\n", 6 * MIB - block_in_swap);
    printf("block_in_swap %lu\n", block_in_swap);
    return 0;
}
