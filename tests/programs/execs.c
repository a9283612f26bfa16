// Allocates for three seconds, starts processes by system, popen and posix_spawn in between, and becomes another program, which ends
// with the status 9. With the argument "fails" it tries that in vain, goes on for a second, and ends with the status 7.
#include "truth.h"
#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void allocate(int size, int rounds) {
    for (int round = 0; round < rounds; round++) {
        void *block = malloc((size_t)size);
        KEEP(block);
        free(block);
        usleep(10000);
        if (round % 25 != 0) continue;
        MUST(system("true") == 0);
        FILE *pipe = popen("echo hi", "r");
        char line[10];
        MUST(pipe && fgets(line, sizeof line, pipe) && pclose(pipe) == 0);
        pid_t child;
        char *arguments[] = {"true", NULL};
        MUST(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0 && waitpid(child, NULL, 0) == child);
    }
}

int main(int count, char **arguments) {
    allocate(1001, 300);
    if (count > 1 && !strcmp(arguments[1], "fails")) {
        MUST(execl("/nonexistent", "x", (char *)NULL) == -1 && errno == ENOENT);
        char *list[] = {"x", NULL};
        MUST(execv("/etc/passwd", list) == -1 && errno == EACCES);
        allocate(2002, 100);
        return 7;
    }
    execl("/bin/sh", "sh", "-c", "sleep 0.2; exit 9", (char *)NULL);
    return 1;
}
