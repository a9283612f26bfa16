// A signal handler forks, in the middle of whatever the program is at; parent and child both return from it and go on
// allocating. Each says what it allocated from there on, by its size: parents 5001, children 5002.
#include "truth.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile sig_atomic_t children, in_child;

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    if (!in_child && children < 5) {
        pid_t pid = fork();
        if (pid == 0) in_child = 1;
        if (pid > 0) children++;
    }
    errno = saved;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval timer = {{0, 20000}, {0, 20000}};
    MUST(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    unsigned long parents = 0;
    while (children < 5 && !in_child) {
        void *block = malloc(5001);
        KEEP(block);
        free(block);
        parents++;
    }
    if (in_child) {
        for (int i = 0; i < 1000; i++) {
            void *block = malloc(5002);
            KEEP(block);
            free(block);
        }
        _exit(0);
    }
    struct itimerval off = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &off, NULL) == 0);
    int good = 0, status;
    while (wait(&status) > 0) good += status == 0;
    say("children that exited 0: %d", good);
    say("truth size 5001 %lu", parents);
    say("truth size 5002 0");
    return 0;
}
