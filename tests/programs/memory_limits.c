// Limits its own memory in the way of the argument, then allocates as much as the limit has room for: addresses, data,
// process (by prlimit), small (30 MiB of data), locked.
#include "truth.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB (1UL << 20)
static void *blocks[400];

static void *thread(void *unused) {
    for (int i = 0; i < 1000; i++) {
        void *block = NEW(321);
        FREE(block, 321);
    }
    return unused;
}

/* How many blocks of a MiB there are, to the nearest sixteenth of what is wanted. */
static void fill(unsigned long wanted) {
    unsigned long got = 0;
    while (got < sizeof blocks / sizeof *blocks && (blocks[got] = malloc(MIB))) memset(blocks[got++], 1, MIB);
    for (unsigned long i = 0; i < got; i++) free(blocks[i]);
    say("as much as the limit has room for: %s", got + wanted / 16 >= wanted ? "yes" : "no");
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    struct rlimit limit = {300 * MIB, 310 * MIB}, before, seen;
    if (!strcmp(way, "addresses") || !strcmp(way, "data")) {
        int which = *way == 'a' ? RLIMIT_AS : RLIMIT_DATA;
        MUST(setrlimit(which, &limit) == 0);
        MUST(getrlimit(which, &seen) == 0);
        say("seen %lu %lu", (unsigned long)seen.rlim_cur, (unsigned long)seen.rlim_max);
        pid_t child = fork();
        if (child == 0) {
            MUST(getrlimit(which, &seen) == 0);
            execl("/bin/sh", "sh", "-c", *way == 'a' ? "ulimit -v" : "ulimit -d", NULL);
            _exit(1);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0);
    } else if (!strcmp(way, "process")) {
        MUST(prlimit(0, RLIMIT_AS, &limit, &before) == 0);
        say("before %lu", (unsigned long)before.rlim_cur);
        limit.rlim_cur = 290 * MIB;
        MUST(prlimit(getpid(), RLIMIT_AS, &limit, &before) == 0);
        say("before %lu", (unsigned long)before.rlim_cur);
        MUST(prlimit(0, RLIMIT_AS, NULL, &seen) == 0);
        say("seen %lu %lu", (unsigned long)seen.rlim_cur, (unsigned long)seen.rlim_max);
    } else if (!strcmp(way, "small")) {
        limit.rlim_cur = limit.rlim_max = 30 * MIB;
        MUST(setrlimit(RLIMIT_DATA, &limit) == 0);
    } else if (!strcmp(way, "locked")) {
        say("locked %d", mlockall(MCL_CURRENT));
        say("nothing %d, errno %d", mlockall(MCL_ONFAULT), errno);
        // What was locked of the program is in memory; a few MiB are, not hundreds.
        FILE *status = fopen("/proc/self/status", "r");
        char line[256];
        unsigned long locked = 0;
        while (fgets(line, sizeof line, status)) sscanf(line, "VmLck: %lu", &locked);
        fclose(status);
        say("some %d, more than the program has %d", locked > 100, locked > 10 << 10);
        say("unlocked %d", munlockall());
    }
    if (strcmp(way, "locked")) fill(*way == 's' ? 25 : *way == 'p' ? 270 : 280);
    pthread_t other;
    MUST(pthread_create(&other, NULL, thread, NULL) == 0);
    pthread_join(other, NULL);
    say("truth size 321 1000");
    return 0;
}
