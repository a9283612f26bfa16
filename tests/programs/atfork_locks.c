// Fork handlers that take a mutex, while other threads hold it and allocate. With -DHANDLERS it is a library whose
// constructor registers the handlers; the program registers them itself when its first argument is "own", or
// "daemon": then it becomes a daemon instead, by a fork that ends the process which calls it, and leaves in the file "took"
// how many seconds that took.
// The second argument is the number of forks; a child allocates and exits.
#include "truth.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#ifdef HANDLERS
pthread_mutex_t guarded = PTHREAD_MUTEX_INITIALIZER;
#else
__attribute__((weak)) pthread_mutex_t guarded = PTHREAD_MUTEX_INITIALIZER;
#endif

static void before(void) { pthread_mutex_lock(&guarded); }
static void after(void) { pthread_mutex_unlock(&guarded); }

#ifdef HANDLERS
__attribute__((constructor)) static void begin(void) { pthread_atfork(before, after, after); }
#else

static int stop;
static unsigned long pairs;

static void *work(void *argument) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&guarded);
        for (int i = 0; i < 20; i++) {
            void *block = malloc(6464);
            KEEP(block);
            free(block);
            truth_add(&pairs, 1);
        }
        pthread_mutex_unlock(&guarded);
        usleep(200);
    }
    return argument;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    MUST(argc > 2);
    int daemonise = strcmp(argv[1], "daemon") == 0;
    if (daemonise || strcmp(argv[1], "own") == 0) MUST(pthread_atfork(before, after, after) == 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) MUST(pthread_create(&threads[i], NULL, work, NULL) == 0);
    double slowest = 0;
    if (daemonise) {
        double start = now();
        MUST(daemon(1, 1) == 0);
        double took = now() - start;
        FILE *part = fopen("part", "w");
        MUST(part && fprintf(part, "%.3f", took) > 0 && fclose(part) == 0 && rename("part", "took") == 0);
        return 0;
    }
    for (int i = 0; i < atoi(argv[2]); i++) {
        double start = now();
        pid_t pid = fork();
        if (pid == 0) {
            void *block = malloc(7777);
            KEEP(block);
            _exit(block ? 0 : 1);
        }
        double took = now() - start;
        slowest = took > slowest ? took : slowest;
        int status = -1;
        MUST(waitpid(pid, &status, 0) == pid && status == 0);
        usleep(2000);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    say("truth size 6464 %lu", pairs);
    say("truth size 7777 0");
    // Plain it takes a millisecond; what is not to be is seconds.
    say("forks were %s", slowest < 2 ? "quick" : "slow");
    return 0;
}
#endif
