// A random walk through functions of every shape: what all programs here share.
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Walk {
    uint64_t random;  // state of the generator, not 0
    long budget;      // calls that may still be made
    int only_plain;   // keep to functions that a signal handler may call
    void *coroutine;  // the coroutine that walks, or null
} Walk;

typedef long (*Function)(Walk *, int depth);

// Registers a function that `go` may call.
void add_function(Function);
// Calls a random function, or checks the backtrace at the bottom.
long go(Walk *, int depth);
// The same with arguments on the stack.
long go_with_stack_arguments(Walk *, int depth, long, long, long, long, long, long, long, long);
// Compares the backtrace with the oracle's.
void check(Walk *);

static inline uint32_t next_random(Walk *walk) {
    uint64_t x = walk->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    walk->random = x;
    return (uint32_t)(x >> 11);
}

// The probe (src/lib.rs).
uint64_t probe(void);
uint64_t probe_at(uint64_t pc, uint64_t sp, uint64_t fp);
uint64_t probe_nested(void);
size_t probe_pcs(uint32_t node, uint64_t *out, size_t max);
uint32_t probe_generation(uint32_t node, uint32_t out);
void probe_code_changed(void);
void probe_load_frame_sections(void);
void probe_frames_registered(const void *begin);
void probe_frames_deregistered(const void *begin);
uint64_t probe_stat(int which);
size_t probe_framehop(uint64_t *out, size_t max);

enum { TRUNCATED = 1, HEURISTIC = 2, SLOW = 4 };
enum { STAT_LEARNED, STAT_TRUNCATED, STAT_HEURISTIC, STAT_SLOW, STAT_FORGOTTEN, STAT_RECORDS, STAT_BYTES, STAT_NODES, STAT_SIGNATURES };

#ifdef __cplusplus
}
#endif
