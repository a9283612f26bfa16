// How a program states its ground truth: counters in static memory and lines by write(2), so that the statement itself
// allocates nothing. `tests/src/truth.rs` says what the lines mean.
#ifndef TRUTH_H
#define TRUTH_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
// The value is used and memory may be read: no tail call, no elided allocation.
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")

#ifdef __cplusplus
#define TRUTH_UNUSED [[maybe_unused]]
#else
#define TRUTH_UNUSED __attribute__((unused))
#endif

struct truth {
    unsigned long allocs, bytes, frees, reallocs, live, live_bytes;
};
TRUTH_UNUSED static struct truth truth;

TRUTH_UNUSED static inline void truth_add(unsigned long *counter, unsigned long by) {
    __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

// Counts a block of `size` bytes that was allocated; a null block is not counted.
TRUTH_UNUSED static inline void *count_alloc(void *block, unsigned long size) {
    KEEP(block);
    if (block) {
        truth_add(&truth.allocs, 1);
        truth_add(&truth.bytes, size);
        truth_add(&truth.live, 1);
        truth_add(&truth.live_bytes, size);
    }
    return block;
}

// Counts a block of `size` bytes that is freed now.
TRUTH_UNUSED static inline void count_free(unsigned long size) {
    truth_add(&truth.frees, 1);
    truth_add(&truth.live, -1UL);
    truth_add(&truth.live_bytes, -size);
}

// A block was resized from `before` to `after` bytes; a null result means that nothing happened.
TRUTH_UNUSED static inline void *resized(void *block, unsigned long before, unsigned long after) {
    KEEP(block);
    if (block) {
        truth_add(&truth.allocs, 1);
        truth_add(&truth.bytes, after);
        truth_add(&truth.reallocs, 1);
        truth_add(&truth.live_bytes, after - before);
    }
    return block;
}

#define NEW(size) count_alloc(malloc(size), (size))
#define FREE(block, size) (count_free(size), free(block))

// One line to standard output by one write(2).
TRUTH_UNUSED __attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (len < 0) _exit(120);
    if ((size_t)len > sizeof line - 2) len = sizeof line - 2;
    line[len++] = '\n';
    if (write(1, line, (size_t)len) != len) _exit(121);
}

// `scope` is "total" (everything the process allocates) or "own" (what the executable itself asked for).
TRUTH_UNUSED static void say_truth(const char *scope) {
    say("truth %s %lu %lu %lu %lu %lu %lu", scope, truth.allocs, truth.bytes, truth.frees, truth.reallocs, truth.live,
        truth.live_bytes);
}

// What must hold or the program ends with a message.
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            say("%s:%d: %s does not hold, errno %d", __FILE__, __LINE__, #condition, errno);                           \
            _exit(122);                                                                                                \
        }                                                                                                              \
    } while (0)

#endif
