// Forks 40 times while a second thread allocates; every child allocates, frees what it inherited, and exits 0.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;

static void *work(void *unused) {
    while (!stop) {
        void *volatile block = malloc(50);
        free(block);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    int failed = 0;
    for (int i = 0; i < 40; i++) {
        void *volatile inherited = malloc(4000);
        pid_t child = fork();
        if (child == 0) {
            free(inherited);
            for (int k = 0; k < 100; k++) {
                void *volatile block = malloc(100 + k);
                free(block);
            }
            char *volatile leaked = malloc(33);
            _exit(leaked == NULL);
        }
        int status = 1;
        waitpid(child, &status, 0);
        failed += status != 0;
        free(inherited);
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("failed %d\n", failed);
    return 0;
}
