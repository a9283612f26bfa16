// Threads hand blocks to each other and move them by realloc, while a signal handler that maps memory interrupts them: its
// events lie between the stamp of a realloc's old block and its record. Prints allocations and frees, reallocs as one of each.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 16, ROUNDS = 4000, SLOTS = 64 };

static _Atomic(void *) slots[SLOTS];
static atomic_long allocs, frees;
static atomic_int stopping;

static void map_one(int signal) {
    (void)signal;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
}

static unsigned next(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void give_up(void *block) {
    if (!block) return;
    free(block);
    atomic_fetch_add(&frees, 1);
}

static void *work(void *argument) {
    unsigned random = (unsigned)(long)argument * 7919u + 1;
    for (int round = 0; round < ROUNDS; round++) {
        void *block = malloc(20000 + next(&random) % 1000);
        atomic_fetch_add(&allocs, 1);
        block = atomic_exchange(&slots[next(&random) % SLOTS], block);
        if (!block) continue;
        if (next(&random) % 2) {
            block = realloc(block, 20000 + next(&random) % 100000);
            atomic_fetch_add(&allocs, 1);
            atomic_fetch_add(&frees, 1);
            block = atomic_exchange(&slots[next(&random) % SLOTS], block);
        }
        give_up(block);
    }
    return NULL;
}

static void *interrupt(void *argument) {
    (void)argument;
    while (!stopping) {
        kill(getpid(), SIGUSR1);
        usleep(100);
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = map_one, .sa_flags = SA_NODEFER | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t interrupter, threads[THREADS];
    pthread_create(&interrupter, NULL, interrupt, NULL);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    stopping = 1;
    pthread_join(interrupter, NULL);
    for (int i = 0; i < SLOTS; i++) give_up(slots[i]);
    printf("%ld %ld\n", (long)allocs, (long)frees);
    return 0;
}
