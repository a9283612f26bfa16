// Timers interrupt three threads that allocate, wherever they are, with a handler that allocates, too. Needs an allocator
// that handlers may enter. Arguments: rounds of each thread.
#include "truth.h"
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

static int rounds = 8000;
static _Atomic unsigned long handled;

static void handler(int number) {
    (void)number;
    int saved = errno;
    void *block = NEW(24);
    block = resized(realloc(block, 48), 24, 48);
    FREE(block, 48);
    handled++;
    errno = saved;
}

static void *work(void *argument) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1};
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    timer_t timer;
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    // Odd intervals, so that they do not keep in step with the loop.
    struct itimerspec often = {{0, 37003 + 1009 * (long)argument}, {0, 50021}};
    MUST(timer_settime(timer, 0, &often, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        size_t size = (size_t)(i & 255);
        void *block = NEW(size);
        if (i & 1) {
            block = resized(realloc(block, 300), size, 300);
            size = 300;
        }
        FREE(block, size);
    }
    MUST(timer_delete(timer) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = atoi(argv[1]);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < 3; i++) MUST(pthread_join(threads[i], NULL) == 0);
    MUST(handled > 0);
    fprintf(stderr, "handled %lu\n", handled);
    say_truth("own");
    return 0;
}
