// Children by fork allocate, free inherited blocks and end in every way; the parent's numbers are its own alone.
#include "truth.h"
#include <signal.h>
#include <sys/wait.h>

static void *inherited[50];

static int child(int number) {
    for (int i = 0; i < 50; i++) free(inherited[i]);
    for (int i = 0; i < 1000; i++) {
        char *block = malloc(4321);
        MUST(block);
        memset(block, number, 4321);
        free(block);
    }
    return number;
}

int main(void) {
    for (int i = 0; i < 50; i++) inherited[i] = NEW(200);
    for (int number = 0; number < 8; number++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            int code = child(number);
            if (number % 4 == 0) exit(code);
            if (number % 4 == 1) _exit(code);
            if (number % 4 == 2) return code;
            kill(getpid(), SIGTERM);
        }
        void *meanwhile = NEW(300);
        int status = 0;
        MUST(waitpid(pid, &status, 0) == pid);
        say("child %d: exit %d, signal %d", number, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        FREE(meanwhile, 300);
    }
    MUST(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    say("truth size 4321 0");
    say_truth("total");
    return 0;
}
