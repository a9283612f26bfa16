// Forbids itself all system calls but a few, for all its threads, and goes on allocating: what is forbidden fails with
// EPERM, or kills the process when the argument is "kill". "strict" asks for what strict mode has: read, write, exit.
// "refused" passes filters that the kernel refuses, and then takes one at an odd address.
#include "truth.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
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

static int filter_is(int error, const void *filter) {
    errno = 0;
    int result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter);
    return error ? result == -1 && errno == error : result == 0;
}

static int refused(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    // How libseccomp asks whether the kernel has filters.
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1 && errno == EINVAL);
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, pages) == -1 && errno == EINVAL);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    struct sock_fprog none = {0, &allow}, unreadable = {1, (void *)(pages + 4096)}, null = {1, NULL};
    // The last instruction crosses the end of what can be read.
    struct sock_fprog cut = {2, (void *)(pages + 4096 - 12)};
    MUST(filter_is(EFAULT, (void *)8) && filter_is(EFAULT, pages + 4096) && filter_is(EFAULT, pages + 4096 - 8));
    MUST(filter_is(EFAULT, (void *)-8L) && filter_is(EFAULT, &unreadable) && filter_is(EFAULT, &cut));
    MUST(filter_is(EINVAL, &none) && filter_is(EINVAL, &null));
    struct sock_fprog many = {5000, &allow};
    MUST(filter_is(EINVAL, &many));
    memcpy(pages + 1, &allow, sizeof allow);
    struct sock_fprog odd = {1, (void *)(pages + 1)};
    memcpy(pages + 101, &odd, sizeof odd);
    MUST(filter_is(0, pages + 101));
    // With a filter in force, too.
    MUST(filter_is(EFAULT, (void *)8));
    for (int i = 0; i < 500; i++) {
        void *block = NEW(300);
        FREE(block, 300);
    }
    say_truth("total");
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "refused")) return refused();
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
