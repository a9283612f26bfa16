// Starts, stops, marks and flushes the recording by the API, weakly linked: without a recorder nothing happens.
// Blocks "outside" are made while recording is off. The first argument says whether it is on at the start.
#include "truth.h"
#include "../../preload/include/tracehound.h"

NOINLINE void *inside(size_t size) { return NEW(size); }
NOINLINE void *outside(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

int main(int argc, char **argv) {
    int on = !(argc > 1 && !strcmp(argv[1], "off"));
    void *early = on ? inside(111) : outside(111);
    if (!on && tracehound_start) tracehound_start();
    void *first = inside(112);
    if (tracehound_mark) tracehound_mark("after the first");
    FREE(first, 112);
    if (tracehound_stop) tracehound_stop();
    void *hidden[100];
    for (int i = 0; i < 100; i++) hidden[i] = outside(113);
    if (tracehound_start) tracehound_start();
    void *second = inside(114);
    if (tracehound_mark) tracehound_mark("after the second");
    KEEP(second);
    if (tracehound_flush) tracehound_flush();
    if (tracehound_stop) tracehound_stop();
    for (int i = 0; i < 100; i++) free(hidden[i]);
    if (on) free(early);
    say("truth function inside %lu %lu", truth.allocs, truth.bytes);
    say("truth function outside 0 0");
    say("truth mark after the first");
    say("truth mark after the second");
    return 0;
}
