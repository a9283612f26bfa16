// Allocates and replaces itself by /bin/echo in the way that the argument says; "fails": by nothing, and goes on.
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *volatile block;

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "execv";
    char *list[] = {"echo", "one", "two", "three", "four", "five", "six", NULL}, *environment[] = {"A=b", NULL};
    block = malloc(500);
    if (!strcmp(how, "fails")) {
        execv("/no/such/file", list);
        execvp("no-such-program-anywhere", list);
        execv("/etc/passwd", list);
        execv("/", list);
        block = malloc(600);
        puts("here");
        return 5;
    }
    if (!strcmp(how, "broken")) {
        // Executable by its mode, but of no format: the recording has been finished by then, and goes on.
        execv(argv[2], list);
        block = malloc(600);
        return 6;
    }
    if (!strcmp(how, "execv")) execv("/bin/echo", list);
    if (!strcmp(how, "execve")) execve("/bin/echo", list, environment);
    if (!strcmp(how, "execvp")) execvp("echo", list);
    if (!strcmp(how, "execvpe")) execvpe("echo", list, environment);
    if (!strcmp(how, "execl")) execl("/bin/echo", "echo", "one", "two", "three", "four", "five", "six", NULL);
    if (!strcmp(how, "execlp")) execlp("echo", "echo", "one", "two", "three", "four", "five", "six", NULL);
    if (!strcmp(how, "execle")) execle("/usr/bin/env", "env", "-u", "x", "printenv", "-0", NULL, environment);
    return 9;
}
