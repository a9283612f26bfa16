// Makes children past fork: by system calls of its own, or by the function that the argument names.
#include "truth.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern pid_t _Fork(void) __attribute__((weak));

static int cloned(void *status) { return *(int *)status; }

static long child(const char *how) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    static int status = 7;
    if (!strcmp(how, "clone")) return clone(cloned, stack + sizeof stack, SIGCHLD, &status);
    if (strcmp(how, "_Fork")) return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    // Older C libraries lack it.
    return _Fork ? _Fork() : fork();
}

int main(int argc, char **argv) {
    void *before = NEW(111);
    for (int i = 0; i < 3; i++) {
        long pid = child(argc > 1 ? argv[1] : "");
        if (pid == 0) _exit(7);
        int status = -1;
        MUST(pid > 0 && waitpid((pid_t)pid, &status, 0) == pid && WIFEXITED(status));
        say("exit %d", WEXITSTATUS(status));
    }
    FREE(before, 111);
    say_truth("total");
    return 0;
}
