// A child in this process's memory that has room of the program's own for thread-local variables, as Chromium makes it to leave
// its file system: it enters a folder and ends.
#include "truth.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static int leave(void *end) {
    if (chdir("/") != 0) _exit(1);
    ((void (*)(int))end)(5);
    return 2;
}

int main(void) {
    static char stack[64 << 10] __attribute__((aligned(16))), storage[64 << 10] __attribute__((aligned(16)));
    const int flags = CLONE_VM | CLONE_VFORK | CLONE_FS | CLONE_SETTLS | SIGCHLD;
    void (*const ends[])(int) = {_exit, _Exit};
    for (int i = 0; i < 2; i++) {
        void *block = NEW(4242);
        int status = -1;
        pid_t child = clone(leave, stack + sizeof stack, flags, (void *)ends[i], NULL, storage + sizeof storage / 2, NULL);
        MUST(child > 0 && waitpid(child, &status, 0) == child);
        say("the child has ended with %d, by signal %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        FREE(block, 4242);
    }
    return 0;
}
