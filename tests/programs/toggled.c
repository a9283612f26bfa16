// Toggles the recording by the signal that TRACEHOUND_TOGGLE_SIGNAL names (USR1); without that variable it does not.
#include "truth.h"
#include <signal.h>

NOINLINE void *inside(size_t size) { return NEW(size); }
NOINLINE void *outside(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

static void toggle(void) {
    if (getenv("TRACEHOUND_TOGGLE_SIGNAL")) raise(SIGUSR1);
}

int main(void) {
    for (int i = 0; i < 20; i++) {
        void *first = inside(410);
        FREE(first, 410);
        toggle();
        void *second = outside(411);
        free(second);
        toggle();
    }
    say("truth function inside 20 8200");
    say("truth function outside 0 0");
    return 0;
}
