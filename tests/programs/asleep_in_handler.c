// Threads sleep in a signal handler that has interrupted whatever they were at, an event as a rule:
// asleep_in_handler FILE THREADS. The first words of FILE are the phase, which somebody else sets, how many threads sleep,
// and how many loop in the phase; from byte 256 on each thread has 128 bytes with what it counted before its handler came:
// blocks of 3000 + its number that malloc has given, and that free has taken.
//   1  loop, and be interrupted: the handler takes a block of 4000 + the thread's number and sleeps
//   2  leave the handler, and loop with blocks of 5000 + the number
//   3  the same with 6000 + the number, a thousand of them, and end
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

static unsigned long *words;
static __thread unsigned long number;

static unsigned long phase(void) { return __atomic_load_n(words, __ATOMIC_ACQUIRE); }

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    void *block = malloc(4000 + number);
    KEEP(block);
    __atomic_fetch_add(words + 1, 1, __ATOMIC_ACQ_REL);
    while (phase() < 2) usleep(1000);
    free(block);
    errno = saved;
}

static void pair(unsigned long size, unsigned long *counters) {
    void *block = malloc(size);
    KEEP(block);
    if (counters) __atomic_store_n(counters, counters[0] + 1, __ATOMIC_RELEASE);
    free(block);
    if (counters) __atomic_store_n(counters + 1, counters[1] + 1, __ATOMIC_RELEASE);
}

static void *work(void *argument) {
    number = (unsigned long)(argument);
    unsigned long *counters = words + 32 + 16 * number;
    while (phase() < 2) pair(3000 + number, counters);
    for (int first = 1; phase() < 3; first = 0) {
        pair(5000 + number, NULL);
        if (first) __atomic_fetch_add(words + 2, 1, __ATOMIC_ACQ_REL);
    }
    for (int i = 0; i < 1000; i++) pair(6000 + number, NULL);
    return NULL;
}

int main(int argc, char **argv) {
    MUST(argc == 3);
    int fd = open(argv[1], O_RDWR);
    MUST(fd >= 0);
    words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(words != MAP_FAILED);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    int count = atoi(argv[2]);
    pthread_t threads[16];
    MUST(count <= 16);
    for (int i = 0; i < count; i++) MUST(pthread_create(&threads[i], NULL, work, (void *)(unsigned long)i) == 0);
    // A thread that has not begun yet does not know its number.
    for (int i = 0; i < count; i++)
        while (!__atomic_load_n(words + 32 + 16 * i + 1, __ATOMIC_ACQUIRE)) usleep(1000);
    usleep(50000);
    for (int i = 0; i < count; i++) MUST(pthread_kill(threads[i], SIGUSR1) == 0);
    for (int i = 0; i < count; i++) MUST(pthread_join(threads[i], NULL) == 0);
    say("all came out");
    return 0;
}
