// Three threads and the first one wait in the way of the argument, for ever.
#include "truth.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>

static const char *way;
static sem_t semaphore;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void *wait_for_ever(void *unused) {
    for (;;) {
        if (!strcmp(way, "semaphore")) sem_wait(&semaphore);
        if (!strcmp(way, "timed")) sem_timedwait(&semaphore, &(struct timespec){.tv_sec = 1L << 40});
        if (!strcmp(way, "condition")) {
            pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
            pthread_mutex_lock(&mutex);
            pthread_cond_wait(&condition, &mutex);
        }
        if (!strcmp(way, "futex")) {
            static int word;
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        }
        char text[10];
        if (!strcmp(way, "stream")) MUST(fread(text, 1, sizeof text, stdin) <= sizeof text);
        if (!strcmp(way, "scanf")) MUST(scanf("%9s", text) <= 1);
        if (!strcmp(way, "system")) MUST(system("read line") >= 0);
    }
    return unused;
}

int main(int count, char **arguments) {
    MUST(count == 2);
    way = arguments[1];
    MUST(sem_init(&semaphore, 0, 0) == 0);
    pthread_t thread;
    // Of streams and children one thread waits.
    int threads = !strcmp(way, "stream") || !strcmp(way, "scanf") || !strcmp(way, "system") ? 0 : 3;
    for (int i = 0; i < threads; i++) MUST(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
    wait_for_ever(NULL);
}
