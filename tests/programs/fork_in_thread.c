// fork from a thread that is not the first; in the child that thread is alone, starts another and exits.
#include "truth.h"
#include <pthread.h>
#include <sys/wait.h>

static void *in_child(void *argument) {
    for (int i = 0; i < 100; i++) free(malloc(5432));
    return argument;
}

NOINLINE void *from_thread(size_t size) { return NEW(size); }

static void *forker(void *argument) {
    void *block = from_thread(1234);
    pid_t pid = fork();
    if (pid == 0) {
        free(block);
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, in_child, (void *)9) || pthread_join(thread, &result)) _exit(90);
        exit((int)(long)result);
    }
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    FREE(block, 1234);
    (void)argument;
    return (void *)(long)WEXITSTATUS(status);
}

int main(void) {
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        void *result = NULL;
        MUST(pthread_create(&thread, NULL, forker, NULL) == 0 && pthread_join(thread, &result) == 0);
        say("child exited %ld", (long)result);
    }
    say("truth size 5432 0");
    say("truth function from_thread 5 6170");
    say_truth("own");
    return 0;
}
