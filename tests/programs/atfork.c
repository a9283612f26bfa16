// pthread_atfork handlers that allocate, in parent and child, around forks from several threads.
#include "truth.h"
#include <pthread.h>
#include <sys/wait.h>

static pid_t first;
static unsigned long prepared;

NOINLINE void *in_handler(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    if (getpid() == first) count_alloc(block, size);
    return block;
}
NOINLINE void release(void *block, size_t size) {
    if (getpid() == first) count_free(size);
    free(block);
}

static void prepare(void) {
    release(in_handler(71), 71);
    truth_add(&prepared, 1);
}
static void in_parent(void) { release(in_handler(72), 72); }
static void in_child(void) { release(in_handler(73), 73); }

static void *forking(void *argument) {
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(in_handler(74) ? 0 : 1);
        int status = -1;
        MUST(waitpid(pid, &status, 0) == pid && status == 0);
    }
    return argument;
}

int main(void) {
    first = getpid();
    MUST(pthread_atfork(prepare, in_parent, in_child) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, forking, NULL) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    say("prepared %lu times", prepared);
    say("truth size 71 30");
    say("truth size 72 30");
    say("truth size 73 0");
    say("truth size 74 0");
    say_truth("own");
    return 0;
}
