// Forbids itself all system calls but a few, for all its threads, and goes on allocating: what is forbidden fails with
// EPERM, or kills the process when the argument is "kill". "strict" asks for what strict mode has: read, write, exit.
#include "truth.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void strict(void) {
    void *block = NEW(300);
    FREE(block, 300);
    say("only read, write and exit from here on");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) syscall(SYS_exit, 9);
    // Small blocks that were there before: nothing is to be asked of the kernel.
    for (int i = 0; i < 100; i++) free(malloc(100));
    syscall(SYS_exit, 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "strict")) strict();
    int kill = argc > 1;
    for (int i = 0; i < 500; i++) {
        void *block = NEW(300);
        FREE(block, 300);
    }
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(write), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(futex), ALLOW(exit_group), ALLOW(exit),
        BPF_STMT(BPF_RET | BPF_K, kill ? SECCOMP_RET_KILL_PROCESS : (SECCOMP_RET_ERRNO | EPERM)),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    if (!kill) MUST(syscall(SYS_getpid) == -1 && errno == EPERM);
    for (int i = 0; i < 20000; i++) {
        void *block = NEW(400);
        if (i % 2) FREE(block, 400);
    }
    say("allocated in the sandbox");
    say_truth("total");
    return 0;
}
