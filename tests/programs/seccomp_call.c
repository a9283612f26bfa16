// Forbids itself one system call and goes on allocating: NUMBER ACTION WAY SCENE.
//
//   ACTION  kill_process kill_thread trap errno: what the filter does with the call
//   WAY     prctl seccomp tsync: how it is put in place, the last for all threads
//   SCENE   alone: one thread. busy: two threads allocate all the time. before: a thread is started behind the filter.
//           thread: a thread filters itself
//
// From the filter on the program itself makes no system call but the one that ends it (and those of pthread_create in
// "before"): its blocks come from what it freed before, and threads wait for each other by spinning.
#include "truth.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static unsigned number, action;
static const char *way;
static _Atomic int ready, filtered, finished;

NOINLINE static void work(int depth, int round) {
    if (depth > 0) {
        work(depth - 1, round);
        KEEP(&depth);
        return;
    }
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = malloc(200);
        KEEP(blocks[i]);
    }
    blocks[0] = realloc(blocks[0], 260 + (size_t)(round & 7));
    KEEP(blocks[0]);
    for (int i = 0; i < 8; i++) free(blocks[i]);
}

// Fills chunks of the recorder, and brings new stacks.
NOINLINE static void allocate(void) {
    for (int round = 0; round < 600; round++) work(round % 60, round);
}

// So much that the allocator need not ask for more afterwards.
static void provide(void) {
    enum { BLOCKS = 2000 };
    static __thread void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(300);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (!strcmp(way, "prctl")) MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    else MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, way[0] == 't' ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) == 0);
    filtered = 1;
}

static void *busy(void *argument) {
    provide();
    ready++;
    do allocate();
    while (!filtered);
    allocate();
    finished++;
    for (;;) __asm__ volatile("pause");
    return argument;
}

static void *filters_itself(void *argument) {
    provide();
    filter();
    allocate();
    finished++;
    for (;;) __asm__ volatile("pause");
    return argument;
}

static void *started(void *argument) {
    provide();
    allocate();
    finished++;
    for (;;) __asm__ volatile("pause");
    return argument;
}

int main(int argc, char **argv) {
    MUST(argc == 5);
    number = (unsigned)atoi(argv[1]);
    action = !strcmp(argv[2], "kill_process") ? SECCOMP_RET_KILL_PROCESS
           : !strcmp(argv[2], "kill_thread")  ? SECCOMP_RET_KILL_THREAD
           : !strcmp(argv[2], "trap")         ? SECCOMP_RET_TRAP
                                              : (SECCOMP_RET_ERRNO | EPERM);
    way = argv[3];
    const char *scene = argv[4];
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 1 << 20);
    provide();
    alarm(30);
    pthread_t threads[2];
    int wanted = 0;
    if (!strcmp(scene, "busy")) {
        wanted = 2;
        for (int i = 0; i < wanted; i++) MUST(pthread_create(&threads[i], NULL, busy, NULL) == 0);
        while (ready < wanted) __asm__ volatile("pause");
        filter();
    } else if (!strcmp(scene, "thread")) {
        wanted = 1;
        MUST(pthread_create(&threads[0], NULL, filters_itself, NULL) == 0);
        while (!filtered) __asm__ volatile("pause");
    } else {
        filter();
        if (!strcmp(scene, "before")) {
            wanted = 1;
            MUST(pthread_create(&threads[0], NULL, started, NULL) == 0);
        }
    }
    allocate();
    while (finished < wanted) __asm__ volatile("pause");
    // Descriptors and output may be forbidden: the exit code is all.
    exit(0);
}
