// Threads allocate and count what they have, each in its own place of a shared file, until the process ends,
// which begins at the nanosecond in its last word:
// end_counted FILE HOW THREADS, where HOW is exec, exit, _exit, handler (which allocates and calls _exit), or badexec: an
// exec that fails, and an exit some time later.
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

static unsigned long *counters;
static char *path;

static void *work(void *argument) {
    unsigned long *counter = argument;
    for (;;) {
        void *block = malloc(3333);
        KEEP(block);
        __atomic_store_n(counter, *counter + 1, __ATOMIC_RELEASE);
        free(block);
        __atomic_store_n(counter + 1, *(counter + 1) + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void handler(int signal) {
    (void)signal;
    free(malloc(4444));
    _exit(4);
}

int main(int argc, char **argv) {
    MUST(argc == 4);
    path = argv[1];
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    MUST(fd >= 0 && ftruncate(fd, 4096) == 0);
    counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(counters != MAP_FAILED);
    if (strcmp(argv[2], "handler") == 0) MUST(signal(SIGALRM, handler) != SIG_ERR);
    for (int i = 0; i < atoi(argv[3]); i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, work, counters + 16 * i) == 0);
    }
    usleep(30000);
    struct timespec now;
    MUST(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    counters[511] = (unsigned long)now.tv_sec * 1000000000ul + (unsigned long)now.tv_nsec;
    if (strcmp(argv[2], "exec") == 0) execl("/bin/true", "true", NULL);
    if (strcmp(argv[2], "badexec") == 0) {
        // The kernel finds out what this is when it is asked to run it.
        int text = open("no-program", O_WRONLY | O_CREAT, 0700);
        MUST(text >= 0 && write(text, "\1\2\3\4", 4) == 4 && close(text) == 0);
        execl("./no-program", "no-program", NULL);
        usleep(30000);
    }
    if (strcmp(argv[2], "exit") == 0) exit(0);
    if (strcmp(argv[2], "handler") == 0) {
        alarm(0);
        ualarm(3000, 0);
        work(counters + 16 * atoi(argv[3]));
    }
    _exit(0);
}
