// A timer interrupts allocation itself thousands of times with a handler that does not allocate; then signals at safe
// places with one that does; masks, pending signals and sigwait are the program's own.
#include "truth.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t ticks;

static void tick(int number) {
    (void)number;
    ticks++;
}

NOINLINE void *in_handler(size_t size) { return NEW(size); }

static void allocating(int number) {
    (void)number;
    int saved = errno;
    void *block = in_handler(410);
    FREE(block, 410);
    errno = saved;
}

int main(void) {
    signal(SIGALRM, tick);
    struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (ticks < 500) {
        for (int i = 0; i < 50; i++) {
            void *block = malloc(409);
            KEEP(block);
            free(block);
        }
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);

    signal(SIGUSR1, allocating);
    for (int i = 0; i < 1000; i++) raise(SIGUSR1);

    sigset_t set, old, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    int open_signals = 0;
    for (int i = 1; i < 32; i++) open_signals += sigismember(&old, i) == 0;
    say("signals open at first: %d", open_signals);
    // To the process: with every thread of the program blocking it, nobody else may take it.
    kill(getpid(), SIGUSR2);
    sigpending(&pending);
    int got = 0;
    MUST(sigismember(&pending, SIGUSR2) == 1 && sigwait(&set, &got) == 0 && got == SIGUSR2);
    struct timespec none = {0, 0};
    MUST(sigtimedwait(&set, NULL, &none) == -1 && errno == EAGAIN);
    int handlers = 0;
    for (int i = 1; i < 32; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0) handlers += action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    }
    say("handlers: %d", handlers);
    say("truth function in_handler 1000 410000");
    say("truth stack 410 in_handler allocating");
    return 0;
}
