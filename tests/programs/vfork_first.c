// A thread whose first event is that of its child by vfork, which runs on its memory and with its storage: in the first
// thread and in another one.
#include "truth.h"
#include <pthread.h>
#include <sys/wait.h>

static void *run(void *path) {
    for (int i = 0; i < 50; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            void *volatile block = NEW(51);
            FREE(block, 51);
            if (path) execl(path, "true", NULL);
            _exit(0);
        }
        int status = -1;
        MUST(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        // Time for the recorder to look after threads that are gone.
        if (i == 0) usleep(500000);
        void *volatile mine = NEW(1000 + i);
        FREE(mine, 1000 + i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    char *path = argc > 1 ? (char *)"/bin/true" : NULL;
    run(path);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, run, path) == 0);
    pthread_join(thread, NULL);
    say_truth("own");
    return 0;
}
