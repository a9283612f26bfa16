// What a program can see of its surroundings: descriptors, environment, children, the name of the process, timers,
// umask, priority, working folder. Nothing of it differs under a recorder.
#include "truth.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
    say("arguments %d, %s", argc, argc > 1 ? argv[1] : "none");
    for (int fd = 0; fd < 256; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) say("descriptor %d", fd);
    }
    for (int fd = 256; fd < 20000; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC)) say("descriptor %d would be inherited", fd);
    }
    unsigned long variables = 0, hash = 0;
    for (char **variable = environ; *variable; variable++) {
        // Each run has a folder of its own.
        if (!strncmp(*variable, "PWD=", 4) || !strncmp(*variable, "OLDPWD=", 7)) continue;
        if (!strncmp(*variable, "TRACEHOUND_", 11) || !strncmp(*variable, "LD_PRELOAD=", 11)) continue;
        variables++;
        for (const char *c = *variable; *c; c++) hash = hash * 31 + (unsigned char)*c;
    }
    say("%lu variables, hash %lx", variables, hash);
    MUST(waitpid(-1, NULL, WNOHANG) == -1);
    say("children: errno %d", errno);
    char name[32] = {0};
    prctl(PR_GET_NAME, name);
    say("dumpable %d, called %s", prctl(PR_GET_DUMPABLE), name);
    struct itimerval timer;
    for (int which = 0; which < 3; which++) {
        getitimer(which, &timer);
        say("timer %d: %ld", which, (long)timer.it_value.tv_sec);
    }
    mode_t mask = umask(022);
    say("umask %o, priority %d", mask, getpriority(PRIO_PROCESS, 0));
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        struct rlimit limit;
        getrlimit(which, &limit);
        say("limit %d: %lu %lu", which, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL) say("signal %d is handled", number);
    }
    return 0;
}
