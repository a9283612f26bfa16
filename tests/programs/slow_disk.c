// Runs a program whose writes to recordings take time, as on a slow disk: slow_disk MICROSECONDS REPORT PROGRAM ARGS…
// Every pwrite to a file called *.dat is held up before it begins, its thread alone. In the end the report says how many
// there were, their bytes, and for how many nanoseconds they were held up together. Exits as the program does.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(what) ((what) ? (void)0 : (perror(#what), exit(99)))

// Stops for the tracer at pwrite64, and at nothing else.
static void announce_writes(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static int is_recording(pid_t thread, unsigned long fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/%d/fd/%lu", thread, fd);
    ssize_t len = readlink(link, path, sizeof path);
    return len > 4 && memcmp(path + len - 4, ".dat", 4) == 0;
}

static unsigned long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned long)time.tv_sec * 1000000000ul + (unsigned long)time.tv_nsec;
}

int main(int argc, char **argv) {
    MUST(argc > 3);
    unsigned long delay = strtoul(argv[1], NULL, 10), writes = 0, bytes = 0, held_up = 0;
    const char *preload = getenv("SLOW_PRELOAD");
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
        raise(SIGSTOP);
        announce_writes();
        if (preload) setenv("LD_PRELOAD", preload, 1);
        execv(argv[3], argv + 3);
        _exit(98);
    }
    int status, code = 97;
    MUST(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    MUST(ptrace(PTRACE_SETOPTIONS, child, 0, options) == 0);
    MUST(ptrace(PTRACE_CONT, child, 0, 0) == 0);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) break;
        if (!WIFSTOPPED(status)) {
            if (thread == child) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status);
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
            struct user_regs_struct registers;
            MUST(ptrace(PTRACE_GETREGS, thread, 0, &registers) == 0);
            if (is_recording(thread, registers.rdi)) {
                unsigned long before = now();
                usleep((useconds_t)delay);
                held_up += now() - before;
                writes++;
                bytes += registers.rdx;
            }
        }
        // Our own stops are no signals, nor is a new thread's first one.
        int passed_on = status >> 16 || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
        ptrace(PTRACE_CONT, thread, 0, passed_on);
    }
    FILE *report = fopen(argv[2], "w");
    MUST(report && fprintf(report, "%lu %lu %lu\n", writes, bytes, held_up) > 0 && fclose(report) == 0);
    return code;
}
