// Counts its threads by the links of its list of them, in all ways by name; with the argument "fork" a child does so, too.
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

static pthread_barrier_t together;

static void *work(void *argument) {
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    return argument;
}

static void count(const char *when) {
    struct stat by_name, below, by_number, other;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/", (int)getpid());
    int proc = open("/proc/", O_RDONLY | O_DIRECTORY);
    MUST(stat("/proc/self/task", &by_name) == 0 && fstatat(proc, "self/task/", &below, 0) == 0);
    MUST(stat(path, &by_number) == 0 && stat("self/task", &other) == 0 && close(proc) == 0);
    say("%s: %lu %lu %lu, a folder of this name %lu", when, by_name.st_nlink - 2, below.st_nlink - 2, by_number.st_nlink - 2,
        other.st_nlink - 2);
    errno = 0;
    MUST(stat("/proc/self/no", &other) == -1 && errno == ENOENT && stat(NULL, &other) == -1 && errno == EFAULT);
}

int main(int argc, char **argv) {
    MUST(mkdir("self", 0777) == 0 && mkdir("self/task", 0777) == 0 && mkdir("self/task/a", 0777) == 0);
    MUST(mkdir("self/task/b", 0777) == 0 && mkdir("self/task/c", 0777) == 0);
    count("alone");
    pthread_t threads[3];
    pthread_barrier_init(&together, NULL, 4);
    for (int i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, work, NULL) == 0);
    pthread_barrier_wait(&together);
    count("with three");
    pthread_barrier_wait(&together);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    if (argc > 1 && strcmp(argv[1], "fork") == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            count("a child");
            exit(0);
        }
        int status = -1;
        MUST(waitpid(pid, &status, 0) == pid && status == 0);
    }
    return 0;
}
