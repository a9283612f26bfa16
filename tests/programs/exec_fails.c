// All ways to exec, each failing: the errors are the system's, and the program is recorded on.
#include "truth.h"
#include <fcntl.h>
#include <sys/syscall.h>

extern char **environ;

NOINLINE void *between(size_t size) { return NEW(size); }

int main(void) {
    char *arguments[] = {(char *)"x", NULL};
    void *blocks[8];
    errno = 0, execv("/nonexistent/x", arguments), say("execv: %d", errno), blocks[0] = between(100);
    errno = 0, execve("/", arguments, environ), say("execve: %d", errno), blocks[1] = between(200);
    errno = 0, execvp("there-is-no-such-program", arguments), say("execvp: %d", errno), blocks[2] = between(300);
    errno = 0, execvpe("", arguments, environ), say("execvpe: %d", errno), blocks[3] = between(400);
    errno = 0, execl("/etc/passwd", "x", (char *)NULL), say("execl: %d", errno), blocks[4] = between(500);
    errno = 0, execle("/dev/null", "x", (char *)NULL, environ), say("execle: %d", errno), blocks[5] = between(600);
    errno = 0, execlp("/proc/self/mem", "x", (char *)NULL), say("execlp: %d", errno), blocks[6] = between(700);
    int fd = open("/etc/passwd", O_RDONLY);
    errno = 0, fexecve(fd, arguments, environ), say("fexecve: %d", errno), blocks[7] = between(800);
    close(fd);
    // Addresses that nobody can read.
    char *volatile nowhere = (char *)8;
    errno = 0, execve(nowhere, arguments, environ), say("execve of no path: %d", errno);
    errno = 0, execve("/bin/true", arguments, (char **)nowhere), say("execve with no list: %d", errno);
    char *list[] = {(char *)"HOME=/", nowhere, NULL};
    errno = 0, execve("/bin/true", arguments, list), say("execve with no entry: %d", errno);
    errno = 0, syscall(SYS_execve, nowhere, nowhere, nowhere), say("execve by number: %d", errno);
    for (int i = 0; i < 8; i++) FREE(blocks[i], (size_t)(i + 1) * 100);
    say("truth function between 8 3600");
    say_truth("own");
    return 0;
}
