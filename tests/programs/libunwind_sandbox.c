// Opens a library whose unwind information only its file has, puts a filter on itself that kills for opening files, and
// allocates through the library: libunwind_sandbox LIBRARY HOW, where HOW says how the filter is put there.
#include "truth.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define KILL(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static NOINLINE void *quiet(unsigned long size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

int main(int argc, char **argv) {
    MUST(argc == 3);
    for (unsigned long i = 0; i < 20; i++) free(quiet(100 + i));
    void *library = dlopen(argv[1], RTLD_NOW);
    MUST(library);
    void *(*call)(void *(*)(unsigned long), unsigned long) =
        (void *(*)(void *(*)(unsigned long), unsigned long))dlsym(library, "late_call");
    MUST(call);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(open), KILL(openat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (strcmp(argv[2], "prctl") == 0) {
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    } else {
        MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    }
    for (unsigned long i = 0; i < 40; i++) free(call(quiet, 300 + i));
    say("allocated in the sandbox");
    return 0;
}
