// One thread sets marks while another one calls exec in vain, again and again.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../preload/include/tracehound.h"

enum { MARKS = 2000 };

static atomic_int done;
static char file[] = "/tmp/marks-beside-execs-XXXXXX";

static void *exec_on(void *unused) {
    while (!atomic_load(&done)) {
        free(malloc(100));
        // The file may be run and is no program.
        execl(file, file, (char *)NULL);
        usleep(500);
    }
    return unused;
}

int main(void) {
    int fd = mkstemp(file);
    if (fd < 0 || write(fd, "\1\2\3\4", 4) != 4 || fchmod(fd, 0755) || close(fd)) return 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, exec_on, NULL)) return 1;
    for (int i = 0; i < MARKS; i++) {
        char label[32];
        snprintf(label, sizeof label, "mark %d", i);
        TRACEHOUND(mark, label);
        usleep(100);
    }
    atomic_store(&done, 1);
    pthread_join(thread, NULL);
    unlink(file);
    return 0;
}
