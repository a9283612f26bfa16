// Leaves its descriptor table, its directory, its user namespace and enters a namespace: each as the kernel lets it, with
// blocks in between.
#include "truth.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>

static void block_of(size_t size) {
    void *block = NEW(size);
    FREE(block, size);
}

static void step(const char *what, int result) {
    say("%s: %d, errno %d", what, result, result ? errno : 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "by number")) {
        step("user", (int)syscall(SYS_unshare, CLONE_NEWUSER));
        step("nothing", (int)syscall(SYS_setns, -1, 0));
        block_of(505);
        say("truth size 505 1");
        return 0;
    }
    block_of(501);
    step("files", unshare(CLONE_FILES));
    step("directory", unshare(CLONE_FS));
    block_of(502);
    int names = open("/proc/self/ns/uts", O_RDONLY);
    step("setns", setns(names, CLONE_NEWUTS));
    close(names);
    // The kernel refuses a process with several threads.
    step("user", unshare(CLONE_NEWUSER));
    block_of(503);
    step("names", unshare(CLONE_NEWUTS));
    int users = open("/proc/self/ns/user", O_RDONLY);
    step("same user namespace", setns(users, CLONE_NEWUSER));
    close(users);
    step("nothing", setns(-1, 0));
    for (int i = 0; i < 300; i++) block_of(504);
    say("truth size 501 1");
    say("truth size 502 1");
    say("truth size 503 1");
    say("truth size 504 300");
    say_truth("own");
    return 0;
}
