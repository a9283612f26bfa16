// Starts another program and waits for it: start_other WAY PROGRAM.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void wait_for(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) exit(1);
}

static void in_a_child(const char *how, char *program) {
    char *arguments[] = {program, NULL};
    pid_t child = fork();
    if (child == 0) {
        if (!strcmp(how, "fexecve")) fexecve(open(program, O_RDONLY), arguments, environ);
        else if (!strcmp(how, "execveat")) {
            char folder[4096];
            snprintf(folder, sizeof folder, "%s", program);
            char *name = strrchr(folder, '/');
            *name++ = 0;
            execveat(open(folder, O_PATH | O_DIRECTORY), name, arguments, environ, 0);
        } else execve(program, arguments, environ);
        _exit(127);
    }
    wait_for(child);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *how = argv[1];
    char *program = argv[2];
    char *arguments[] = {program, NULL};
    if (!strcmp(how, "vfork")) {
        pid_t child = vfork();
        if (child == 0) {
            execve(program, arguments, environ);
            _exit(127);
        }
        wait_for(child);
    } else if (!strcmp(how, "spawn")) {
        pid_t child;
        if (posix_spawn(&child, program, NULL, NULL, arguments, environ) != 0) return 1;
        wait_for(child);
    } else if (strstr(how, "_too_long")) {
        enum { TOO_LONG = 1 << 20 };
        char *longest = calloc(1, TOO_LONG);
        memset(longest, 'x', TOO_LONG - 1);
        char *refused[] = {program, longest, NULL};
        pid_t child;
        if (!strncmp(how, "own", 3)) {
            execve(program, refused, environ);
        } else if (!strncmp(how, "spawn", 5)) {
            if (posix_spawn(&child, program, NULL, NULL, refused, environ) != E2BIG) return 1;
            return 0;
        } else if ((child = vfork()) == 0) {
            execve(program, refused, environ);
            _exit(errno == E2BIG ? 0 : 1);
        } else wait_for(child);
        free(longest);
    } else if (!strcmp(how, "script")) {
        char name[] = "/tmp/start-other-XXXXXX";
        int fd = mkstemp(name);
        if (fd < 0 || dprintf(fd, "#!%s\n", program) < 0 || fchmod(fd, 0755) != 0) return 1;
        close(fd);
        in_a_child("execve", name);
        unlink(name);
    } else if (!strcmp(how, "no_new_privs")) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
        in_a_child("execve", program);
    } else if (!strcmp(how, "popen")) {
        unsetenv("LD_PRELOAD");
        FILE *output = popen(program, "r");
        if (!output || pclose(output) != 0) return 1;
    } else if (!strcmp(how, "system") || !strcmp(how, "clearenv") || !strcmp(how, "system_as_it_is")) {
        if (!strcmp(how, "system")) setenv("LD_PRELOAD", "", 1);
        if (!strcmp(how, "clearenv")) clearenv();
        if (system(program) != 0) return 1;
    } else {
        in_a_child(how, program);
    }
    return 0;
}
