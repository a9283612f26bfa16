// Processes made without fork(3): clone(2) with a stack of its own, with shared memory, and by the bare system call.
#include "truth.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char stack[256 << 10] __attribute__((aligned(64)));

static int separate(void *argument) {
    for (int i = 0; i < 200; i++) free(malloc(3210));
    return *(int *)argument;
}

static int sharing(void *argument) {
    *(int *)argument += 1;
    return 4;
}

static int wait_for(pid_t pid) {
    int status = -1;
    MUST(pid > 0 && waitpid(pid, &status, __WALL) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void) {
    void *mine = NEW(640);
    int code = 6;
    say("clone: exit %d", wait_for(clone(separate, stack + sizeof stack, SIGCHLD, &code)));
    say("clone with shared memory: exit %d",
        wait_for(clone(sharing, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &code)));
    say("the child changed the number to %d", code);
    pid_t pid = (pid_t)syscall(SYS_fork);
    if (pid == 0) {
        for (int i = 0; i < 200; i++) free(malloc(3210));
        _exit(8);
    }
    say("bare fork: exit %d", wait_for(pid));
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        free(malloc(3210));
        exit(9);
    }
    say("bare clone: exit %d", wait_for(pid));
    FREE(mine, 640);
    say("truth size 3210 0");
    say_truth("total");
    return 0;
}
