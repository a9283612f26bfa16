// A realloc that takes long and is interrupted by a signal handler that allocates: preloaded with slow_allocator.c, whose
// realloc raises the signal before it gives the old block back. Another thread goes on meanwhile.
#include "truth.h"
#include <pthread.h>
#include <signal.h>

static volatile int inside, stop;

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    for (int i = 0; i < 50; i++) {
        void *block = malloc(4040);
        KEEP(block);
        void *more = realloc(block, 4141);
        KEEP(more);
        free(more);
        if (i % 10 == 0) {
            // More than two flushes of the recorder's.
            inside = 1;
            usleep(120000);
        }
    }
    inside = 0;
    errno = saved;
}

static void *other(void *unused) {
    while (!stop) {
        void *block = malloc(2020);
        KEEP(block);
        free(block);
        usleep(inside ? 100 : 1000);
    }
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, other, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        void *block = malloc(1000);
        KEEP(block);
        block = realloc(block, 100000 + i);
        KEEP(block);
        free(block);
    }
    stop = 1;
    MUST(pthread_join(thread, NULL) == 0);
    say("truth size 1000 3");
    say("truth size 4040 150");
    say("truth size 4141 150");
    for (int i = 0; i < 3; i++) say("truth size %d 1", 100000 + i);
    return 0;
}
