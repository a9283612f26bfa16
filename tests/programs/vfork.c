// vfork: the child runs on the parent's memory until it execs or exits.
#include "truth.h"
#include <sys/wait.h>

static void run(const char *what, const char *path) {
    void *before = NEW(111);
    pid_t pid = vfork();
    if (pid == 0) {
        if (path) {
            char *arguments[] = {(char *)"sh", (char *)"-c", (char *)"exit 5", NULL};
            execv(path, arguments);
        }
        _exit(7);
    }
    int status = -1;
    MUST(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    say("%s: exit %d", what, WEXITSTATUS(status));
    FREE(before, 111);
}

int main(void) {
    for (int i = 0; i < 10; i++) {
        run("vfork and exec", "/bin/sh");
        run("vfork and failing exec", "/nonexistent");
        run("vfork and _exit", NULL);
    }
    say_truth("total");
    return 0;
}
