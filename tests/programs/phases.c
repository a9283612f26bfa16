// Threads allocate without pause blocks whose size tells the phase; recording is stopped in the middle of one phase and
// started in the middle of a later one, so that the phase between them must leave no trace.
//   phases api | signal     the program switches by the C interface, or by SIGUSR1
//   phases file PATH        another process says the phase in the file's first word; each thread answers in its own
#include "../../preload/include/tracehound.h"
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#define THREADS 3

struct shared {
    unsigned long phase, seen[THREADS];
};
static struct shared own, *shared = &own;

NOINLINE static void busy_with(unsigned long phase) {
    void *block = malloc(1000 + phase);
    KEEP(block);
    free(block);
}

static void *busy(void *number) {
    unsigned long phase;
    while ((phase = __atomic_load_n(&shared->phase, __ATOMIC_SEQ_CST)) != 99) {
        __atomic_store_n(&shared->seen[(long)number], phase, __ATOMIC_SEQ_CST);
        if (phase) busy_with(phase);
        usleep(20);
    }
    return NULL;
}

// From its return on nobody begins an allocation of an earlier phase.
static void enter(unsigned long phase) {
    __atomic_store_n(&shared->phase, phase, __ATOMIC_SEQ_CST);
    for (int i = 0; i < THREADS; i++)
        while (__atomic_load_n(&shared->seen[i], __ATOMIC_SEQ_CST) != phase) usleep(50);
    usleep(5000);
}

static int by_signal;

static void stop(void) {
    if (by_signal && getenv("TRACEHOUND_TOGGLE_SIGNAL")) raise(SIGUSR1);
    else if (!by_signal && tracehound_stop) tracehound_stop();
}

static void start(void) {
    if (by_signal && getenv("TRACEHOUND_TOGGLE_SIGNAL")) raise(SIGUSR1);
    else if (!by_signal && tracehound_start) tracehound_start();
}

int main(int argc, char **argv) {
    if (argc > 2) {
        int fd = open(argv[2], O_RDWR);
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (shared == MAP_FAILED) return 1;
    }
    by_signal = argc > 1 && !strcmp(argv[1], "signal");
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, busy, (void *)i);
    if (shared == &own) {
        for (unsigned long round = 0; round < 40; round += 4) {
            enter(round + 1);
            stop();
            enter(round + 2);
            enter(round + 3);
            start();
            enter(round + 4);
        }
        __atomic_store_n(&shared->phase, 99, __ATOMIC_SEQ_CST);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
