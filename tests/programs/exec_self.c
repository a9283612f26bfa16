// Replaces itself by itself; says what is left of LD_PRELOAD in the second image. With "thread", exec comes from a
// thread while another allocates.
#include "truth.h"
#include <pthread.h>

static char *path;

NOINLINE void *before_exec(size_t size) { return NEW(size); }
NOINLINE void *after_exec(size_t size) { return NEW(size); }

static void *busy(void *argument) {
    for (;;) free(before_exec(48));
    return argument;
}

static void *replace(void *argument) {
    char *arguments[] = {path, (char *)"second", NULL};
    execv(path, arguments);
    return argument;
}

int main(int argc, char **argv) {
    path = argv[0];
    if (argc > 1 && !strcmp(argv[1], "second")) {
        const char *preload = getenv("LD_PRELOAD");
        say("LD_PRELOAD after exec: %s", preload && *preload ? preload : "none");
        void *block = after_exec(4242);
        KEEP(block);
        return 21;
    }
    void *block = before_exec(2424);
    say("truth size 2424 1");
    if (argc > 1 && !strcmp(argv[1], "thread")) {
        pthread_t threads[2];
        MUST(pthread_create(&threads[0], NULL, busy, NULL) == 0);
        usleep(20000);
        MUST(pthread_create(&threads[1], NULL, replace, NULL) == 0);
        pthread_join(threads[1], NULL);
    } else {
        say_truth("total");
        replace(NULL);
    }
    KEEP(block);
    return 99;
}
