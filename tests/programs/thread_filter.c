// A thread other than the first puts a filter on itself that kills for a system call that it never makes (newfstatat), and goes
// on allocating. Ends with the status 5 when standard input ends.
#include "truth.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static _Atomic int ended;

static void *filtered(void *unused) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    while (!ended) {
        void *block = malloc(100);
        KEEP(block);
        free(block);
        usleep(1000);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, filtered, NULL) == 0);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    ended = 1;
    pthread_join(thread, NULL);
    return 5;
}
