// posix_spawn, system and popen: output and exit codes of the children.
#include "truth.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

NOINLINE void *mine(size_t size) { return NEW(size); }

int main(void) {
    void *block = mine(900);
    for (int i = 0; i < 5; i++) {
        char script[] = "x=$(echo inner | tr a-z A-Z); (exit 3); echo $x $?; exit 11";
        char *arguments[] = {(char *)"sh", (char *)"-c", script, NULL};
        pid_t pid = 0;
        int status = -1;
        MUST((i % 2 ? posix_spawnp(&pid, "sh", NULL, NULL, arguments, environ)
                    : posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ)) == 0);
        MUST(waitpid(pid, &status, 0) == pid);
        say("spawned: %d", WEXITSTATUS(status));
    }
    say("system: %d", WEXITSTATUS(system("echo from system; exit 12")));
    say("system in a subshell: %d", WEXITSTATUS(system("(exit 3)")));
    FILE *pipe = popen("printf 'one\\ntwo\\n' | sort -r; exit 13", "r");
    MUST(pipe);
    char line[64];
    while (fgets(line, sizeof line, pipe)) say("popen: %.3s", line);
    say("pclose: %d", WEXITSTATUS(pclose(pipe)));
    FREE(block, 900);
    say("truth function mine 1 900");
    say_truth("own");
    return 0;
}
