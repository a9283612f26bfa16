// Processes that inherit blocks. Each says at its end what it holds: "holds PID BLOCKS BYTES".
//   tree     three generations, each frees, moves and makes blocks
//   forty    forty children at once, each frees another number of blocks; the parent goes on freeing
//   thread   a thread forks while two others allocate
//   orphan   the parent ends before its child does anything
//   killed   the parent is killed before its child does anything
//   stays    the parent runs on until it is killed, after its child has ended
//   quiet    the child makes no block and frees none
//   million  COUNT blocks; a child that ends at once, and how long that took: "child SECONDS"
#include "truth.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static void *blocks[1100000];
static size_t sizes[1100000];
static long first, last;
static long held, held_bytes;

NOINLINE void *kept_block(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}
NOINLINE void *moved_block(void *old, size_t size) {
    void *block = realloc(old, size);
    KEEP(block);
    return block;
}
NOINLINE void *noise_block(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

static void keep(long count, size_t size) {
    for (long i = 0; i < count; i++, last++) {
        blocks[last] = kept_block(size);
        sizes[last] = size;
        held++;
        held_bytes += (long)size;
    }
}

static void drop(long count) {
    for (long i = 0; i < count; i++, first++) {
        free(blocks[first]);
        held--;
        held_bytes -= (long)sizes[first];
    }
}

static void move(long count, size_t size) {
    for (long i = first; i < first + count; i++) {
        blocks[i] = moved_block(blocks[i], size);
        held_bytes += (long)size - (long)sizes[i];
        sizes[i] = size;
    }
}

static void report(void) {
    char line[100];
    int len = snprintf(line, sizeof line, "holds %d %ld %ld\n", (int)getpid(), held, held_bytes);
    MUST(write(1, line, (size_t)len) == len);
}

static void pass(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0) {}
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void await(pid_t pid) {
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
}

static void child(void) {
    drop(10);
    move(3, 5000);
    keep(7, 300);
    drop(2);
    report();
}

static pid_t fork_child(void) {
    pid_t pid = fork();
    MUST(pid >= 0);
    return pid;
}

static void tree(void) {
    keep(100, 100);
    drop(5);
    pid_t one = fork_child();
    if (one == 0) {
        drop(10);
        keep(5, 200);
        pid_t two = fork_child();
        if (two == 0) {
            move(3, 4000);
            keep(7, 300);
            pid_t three = fork_child();
            if (three == 0) {
                child();
                exit(0);
            }
            drop(20);
            await(three);
            report();
            exit(0);
        }
        keep(1, 1);
        await(two);
        report();
        exit(0);
    }
    drop(1);
    await(one);
    report();
}

static void forty(void) {
    pid_t pids[40];
    keep(1000, 64);
    for (int i = 0; i < 40; i++) {
        pids[i] = fork_child();
        if (pids[i] == 0) {
            drop(i);
            keep(2 * i, 80);
            report();
            exit(0);
        }
        drop(1);
        keep(2, 32);
    }
    for (int i = 0; i < 40; i++) await(pids[i]);
    report();
}

static volatile int over;

static void *noise(void *argument) {
    while (!over) {
        void *some[16];
        for (int i = 0; i < 16; i++) some[i] = noise_block(500);
        for (int i = 0; i < 16; i++) free(some[i]);
        struct timespec moment = {0, 20000};
        nanosleep(&moment, NULL);
    }
    return argument;
}

static void *forker(void *argument) {
    for (int i = 0; i < 8; i++) {
        keep(10, 700);
        pid_t pid = fork_child();
        if (pid == 0) {
            child();
            exit(0);
        }
        drop(3);
        await(pid);
    }
    return argument;
}

static void thread(void) {
    pthread_t threads[3];
    keep(50, 900);
    MUST(pthread_create(&threads[0], NULL, noise, NULL) == 0);
    MUST(pthread_create(&threads[1], NULL, noise, NULL) == 0);
    MUST(pthread_create(&threads[2], NULL, forker, NULL) == 0);
    pthread_join(threads[2], NULL);
    over = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    report();
}

int main(int argc, char **argv) {
    MUST(argc > 1);
    const char *mode = argv[1];
    if (strcmp(mode, "tree") == 0) {
        tree();
    } else if (strcmp(mode, "forty") == 0) {
        forty();
    } else if (strcmp(mode, "thread") == 0) {
        thread();
    } else if (strcmp(mode, "million") == 0) {
        keep(atol(argv[2]), 48);
        for (int i = 0; i < 3; i++) {
            double start = now();
            pid_t pid = fork_child();
            if (pid == 0) _exit(0);
            await(pid);
            char line[60];
            int len = snprintf(line, sizeof line, "child %.6f\n", now() - start);
            MUST(write(1, line, (size_t)len) == len);
        }
        report();
    } else {
        keep(100, 100);
        drop(5);
        pid_t pid = fork_child();
        if (pid == 0) {
            if (strcmp(mode, "quiet") == 0) {
                report();
                _exit(0);
            }
            if (strcmp(mode, "stays") != 0) pass(400);
            child();
            exit(0);
        }
        keep(4, 44);
        if (strcmp(mode, "killed") == 0) kill(getpid(), SIGKILL);
        if (strcmp(mode, "stays") == 0) {
            await(pid);
            MUST(write(1, "ready\n", 6) == 6);
            for (;;) pause();
        }
        if (strcmp(mode, "quiet") == 0) await(pid);
        report();
    }
    return 0;
}
