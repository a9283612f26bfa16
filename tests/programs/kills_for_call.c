// Forbids itself one system call, NUMBER, by a filter that kills the process, and goes on allocating; ends with the status 5.
// With a second argument it first waits for the end of its input; it says how the filter is installed.
#include "truth.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int count, char **arguments) {
    MUST(count == 2 || count == 3);
    int by_number = count == 3 && !strcmp(arguments[2], "syscall");
    while (count == 3 && getchar() != EOF) {
    }
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(arguments[1]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (by_number) MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    for (int round = 0; round < 600; round++) {
        void *block = malloc(100);
        KEEP(block);
        free(block);
        usleep(10000);
    }
    return 5;
}
