// Becomes a daemon the old way: fork twice, setsid, close everything, work, leave a file. The first process waits for
// the file and prints it.
#include "truth.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

NOINLINE void *in_daemon(size_t size) { return NEW(size); }
NOINLINE void *in_parent(size_t size) { return NEW(size); }

static void daemon_work(void) {
    alarm(30);
    if (setsid() < 0) _exit(1);
    pid_t pid = fork();
    if (pid) _exit(pid < 0);
    long limit = sysconf(_SC_OPEN_MAX);
    for (int fd = 0; fd < limit && fd < 70000; fd++) close(fd);
    int null = open("/dev/null", O_RDWR);
    if (null != 0 || dup(0) != 1 || dup(0) != 2) _exit(2);
    for (int i = 0; i < 3000; i++) {
        void *block = in_daemon(700);
        if (!block) _exit(3);
        FREE(block, 700);
    }
    int fd = open("result.part", O_CREAT | O_WRONLY, 0600);
    char text[32];
    int len = snprintf(text, sizeof text, "lowest descriptor %d\n", fd);
    if (write(fd, text, (size_t)len) != len || close(fd) || rename("result.part", "result")) _exit(4);
    exit(0);
}

int main(void) {
    void *block = in_parent(800);
    pid_t pid = fork();
    if (pid == 0) daemon_work();
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    int fd = -1;
    for (int i = 0; i < 2000 && fd < 0; i++) {
        usleep(10000);
        fd = open("result", O_RDONLY);
    }
    char text[64] = {0};
    MUST(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    say("daemon: %.*s", (int)strcspn(text, "\n"), text);
    FREE(block, 800);
    say("truth function in_parent 1 800");
    say("truth function in_daemon 0 0");
    say_truth("own");
    return 0;
}
