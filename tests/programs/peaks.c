// A part whose memory is highest at another time than the heap's: first `parse` holds 1 MiB and keeps 64 KiB of it, then
// `build` holds 8 MiB, then `parse` holds half a MiB again.
#include "truth.h"

NOINLINE static void *parse(size_t bytes) {
    void *block = malloc(bytes);
    KEEP(block);
    return block;
}

NOINLINE static void *build(size_t bytes) {
    void *block = malloc(bytes);
    KEEP(block);
    return block;
}

int main(void) {
    enum { PARTS = 16 };
    void *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = parse(64 << 10);
    for (int i = 1; i < PARTS; i++)
        free(parts[i]);
    usleep(20000);
    void *built = build(8 << 20);
    usleep(20000);
    free(built);
    void *more = parse(448 << 10);
    usleep(20000);
    free(more);
    free(parts[0]);
    return 0;
}
