// Becomes a daemon as services do: its parents are gone, the first of them when the daemon is up, and its descriptors are
// closed. It ends when the file `stop` is there.
#include <stdlib.h>
#include <unistd.h>

static void *volatile kept[100];

int main(void) {
    int up[2];
    char none;
    if (pipe(up) != 0) return 1;
    if (fork() != 0) {
        close(up[1]);
        // The end of the pipe: the daemon has closed it, and who was between them is gone.
        _exit(read(up[0], &none, 1) == 0 ? 0 : 1);
    }
    setsid();
    if (fork() != 0) _exit(0);
    for (int i = 0; i < 100; i++) kept[i] = malloc(100);
    for (int fd = 0; fd < 1024; fd++) close(fd);
    for (int i = 0; i < 2000 && access("stop", F_OK) != 0; i++) usleep(10000);
    return 0;
}
