// Forty forks from a program whose threads allocate all the while; every child allocates and exits 0.
#include "truth.h"
#include <pthread.h>
#include <sys/wait.h>

static int stop;

NOINLINE void *busy_block(size_t size) { return NEW(size); }

static void *busy(void *argument) {
    size_t size = (size_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        void *blocks[16];
        for (int i = 0; i < 16; i++) blocks[i] = busy_block(size);
        for (int i = 0; i < 16; i++) FREE(blocks[i], size);
        usleep(20);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) MUST(pthread_create(&threads[i], NULL, busy, (void *)(i * 100 + 50)) == 0);
    // The first thread allocates, too: glibc's pthread_create does that for it, musl's does not.
    void *own = NEW(7);
    FREE(own, 7);
    int good = 0;
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            for (int k = 0; k < 100; k++) {
                // The compiler would leave out a pair that nobody looks at.
                void *volatile block = malloc(6543);
                free(block);
            }
            if (i % 2) _exit(0);
            exit(0);
        }
        int status = -1;
        MUST(waitpid(pid, &status, 0) == pid);
        good += status == 0;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    say("children that exited 0: %d", good);
    say("truth size 6543 0");
    return 0;
}
