// Threads named by pthread_setname_np (before, from outside) and by prctl (from inside), and renamed; they are gone
// when the recording ends.
#include "truth.h"
#include <pthread.h>
#include <sys/prctl.h>

static pthread_barrier_t named;

static void *by_other(void *argument) {
    pthread_barrier_wait(&named);
    void *block = NEW(5001);
    FREE(block, 5001);
    return argument;
}

static void *by_itself(void *argument) {
    prctl(PR_SET_NAME, "by prctl");
    void *block = NEW(5002);
    FREE(block, 5002);
    return argument;
}

static void *after_first_block(void *argument) {
    void *block = NEW(5003);
    pthread_setname_np(pthread_self(), "named late");
    FREE(block, 5003);
    return argument;
}

static void *nameless(void *argument) {
    void *block = NEW(5004);
    FREE(block, 5004);
    return argument;
}

int main(void) {
    pthread_t thread;
    pthread_barrier_init(&named, NULL, 2);
    MUST(pthread_create(&thread, NULL, by_other, NULL) == 0);
    MUST(pthread_setname_np(thread, "by pthread") == 0);
    pthread_barrier_wait(&named);
    pthread_join(thread, NULL);
    MUST(pthread_create(&thread, NULL, by_itself, NULL) == 0 && pthread_join(thread, NULL) == 0);
    MUST(pthread_create(&thread, NULL, after_first_block, NULL) == 0 && pthread_join(thread, NULL) == 0);
    prctl(PR_SET_NAME, "the first");
    MUST(pthread_create(&thread, NULL, nameless, NULL) == 0 && pthread_join(thread, NULL) == 0);
    char name[32] = {0};
    prctl(PR_GET_NAME, name);
    say("I am %s", name);
    say("truth name 5001 by pthread");
    say("truth name 5002 by prctl");
    say("truth name 5003 named late");
    say("truth name 5004 the first");
    say_truth("own");
    return 0;
}
