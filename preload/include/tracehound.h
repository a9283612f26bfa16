/* Tracehound's interface for the program under study.
 *
 * All functions are weak: a program that uses them needs no library at link time and runs unchanged without the
 * recorder. Test a function before the call, or use the TRACEHOUND macro:
 *
 *     TRACEHOUND(mark, "loaded");
 *
 * All of them may be called from any thread. start, stop, mark, context_set and context_get may be called in signal
 * handlers. */
#ifndef TRACEHOUND_H
#define TRACEHOUND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts recording, after TRACEHOUND_START=off or tracehound_stop(); at once, for all threads. */
void tracehound_start(void) __attribute__((weak));

/* Stops recording; at once, for all threads. */
void tracehound_stop(void) __attribute__((weak));

/* Sets a mark on the timeline. The label is copied, at most 4096 bytes of it. While recording is stopped, as before the
 * first start, nothing is set. */
void tracehound_mark(const char *label) __attribute__((weak));

/* Waits until everything recorded so far is in the file, at most two seconds. */
void tracehound_flush(void) __attribute__((weak));

/* Looks now at which pages of the process are in memory, for `heaptrace memory --at LABEL`; waits until that is done, at
 * most two seconds. The label is copied, and may be null. */
void tracehound_look(const char *label) __attribute__((weak));

/* For allocators of the program's own: a block was handed out, a block was taken back. */
void tracehound_pool_alloc(void *block, size_t size) __attribute__((weak));
void tracehound_pool_free(void *block) __attribute__((weak));

/* Whose request it is: events of the calling thread belong to request context `id` from now on; 0 = to none. A change
 * costs a few nanoseconds, and one record at the thread's next event. */
void tracehound_context_set(uint64_t id) __attribute__((weak));
uint64_t tracehound_context_get(void) __attribute__((weak));

/* Names request context `id`. The name is copied, at most 4096 bytes of it; the latest one counts. */
void tracehound_context_name(uint64_t id, const char *name) __attribute__((weak));

/* Calls a function if the recorder is there. */
#define TRACEHOUND(function, ...)                                                                                      \
    do {                                                                                                               \
        if (tracehound_##function)                                                                                     \
            tracehound_##function(__VA_ARGS__);                                                                        \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
