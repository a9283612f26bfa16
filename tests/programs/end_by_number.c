// Ends by a system call of its own: the argument says which.
#include "truth.h"
#include <fcntl.h>
#include <sys/syscall.h>

int main(int argc, char **argv) {
    MUST(argc == 2);
    void *block = NEW(333);
    KEEP(block);
    char *arguments[] = {(char *)"true", NULL}, *environment[] = {NULL};
    // Fails, so that the recording goes on.
    MUST(syscall(SYS_execve, "/nowhere", arguments, environment) == -1 && errno == ENOENT);
    MUST(syscall(SYS_execveat, AT_FDCWD, "/nowhere", arguments, environment, 0) == -1 && errno == ENOENT);
    KEEP(NEW(334));
    say_truth("total");
    fflush(stdout);
    if (!strcmp(argv[1], "execve")) syscall(SYS_execve, "/bin/true", arguments, environment);
    if (!strcmp(argv[1], "execveat")) syscall(SYS_execveat, AT_FDCWD, "/bin/true", arguments, environment, 0);
    if (!strcmp(argv[1], "exit_group")) syscall(SYS_exit_group, 0);
    return 99;
}
