// Reallocs that a signal handler interrupts when the old block is free again: the handler's own blocks get its address.
// Preloaded with slow_allocator.c. Every other handler keeps its block for later.
#include "truth.h"
#include <signal.h>

static void *volatile kept;
static volatile int turn;

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    void *block = malloc(700);
    KEEP(block);
    if (turn++ % 2) {
        kept = block;
    } else {
        free(block);
        block = malloc(600);
        KEEP(block);
        free(block);
    }
    errno = saved;
}

int main(void) {
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
