// Reallocs that a signal handler interrupts when the old block is free again: the handler's own blocks get its address.
// Preloaded with slow_allocator.c. Every other handler keeps its block for later. With an argument, handlers flush the
// recording behind each of their events, so that a block of the file ends between them and the realloc.
#include "truth.h"
#include "../../preload/include/tracehound.h"
#include <signal.h>

static void *volatile kept;
static volatile int turn, flushes;

static void flush(void) {
    if (flushes && tracehound_flush) tracehound_flush();
}

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    void *block = malloc(700);
    KEEP(block);
    flush();
    if (turn++ % 2) {
        kept = block;
    } else {
        free(block);
        flush();
        block = malloc(600);
        KEEP(block);
        flush();
        free(block);
    }
    errno = saved;
}

int main(int argc, char **argv) {
    (void)argv;
    flushes = argc > 1;
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < 40; i++) {
        void *block = malloc(1000);
        KEEP(block);
        void *moved = realloc(block, 200000 + i);
        KEEP(moved);
        free(moved);
        free(kept);
        kept = NULL;
    }
    say("truth size 1000 40");
    say("truth size 700 40");
    say("truth size 600 20");
    for (int i = 0; i < 40; i++) say("truth size %d 1", 200000 + i);
    return 0;
}
