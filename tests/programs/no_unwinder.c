// A thread makes its first allocations when the address space has only so many pages left as the argument says. States how
// many of them it got.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile int go, made;

static void *thread(void *unused) {
    while (!go) usleep(1000);
    for (int i = 0; i < 100; i++) {
        void *block = malloc(24);
        __asm__ volatile("" : : "r"(block) : "memory");
        if (block) made++;
        free(block);
    }
    return unused;
}

int main(int argc, char **argv) {
    // Its arena is there before the limit is.
    free(malloc(100));
    pthread_t other;
    if (pthread_create(&other, NULL, thread, NULL)) return 1;
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%lu", &pages) != 1) return 1;
    fclose(statm);
    struct rlimit limit = {(pages + (argc > 1 ? atol(argv[1]) : 0)) * 4096, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    go = 1;
    pthread_join(other, NULL);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_AS, &limit);
    printf("made %d\n", made);
    return 0;
}
