// A child to be followed: it frees half of what it inherits, makes its own blocks, starts a thread, forks again.
// "child" lines are the ground truth of the first child, "grandchild" lines that of its child.
#include "truth.h"
#include <pthread.h>
#include <sys/wait.h>

NOINLINE void *in_parent(size_t size) { return NEW(size); }
NOINLINE void *in_child(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}
NOINLINE void *in_grandchild(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

static void *inherited[40];

static void *thread_of_child(void *argument) {
    for (int i = 0; i < 50; i++) free(in_child(901));
    return argument;
}

static void child(void) {
    for (int i = 0; i < 20; i++) free(inherited[i]);
    for (int i = 0; i < 100; i++) {
        void *block = in_child(900);
        if (i % 2) free(block);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_of_child, NULL) || pthread_join(thread, NULL)) _exit(70);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 20; i < 40; i++) free(inherited[i]);
        for (int i = 0; i < 10; i++) in_grandchild(950);
        exit(0);
    }
    int status = -1;
    if (waitpid(pid, &status, 0) != pid || status) _exit(71);
    exit(0);
}

int main(void) {
    for (int i = 0; i < 40; i++) inherited[i] = in_parent(800);
    pid_t pid = fork();
    if (pid == 0) child();
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    say("the child's status is %d", status);
    for (int i = 0; i < 40; i++) FREE(inherited[i], 800);
    say("truth function in_parent 40 32000");
    say("truth function in_child 0 0");
    say("truth leaked in_parent 0 0");
    say_truth("total");
    return 0;
}
