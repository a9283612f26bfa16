// Allocates and frees for ever and counts, in the shared file of its first argument, what it has completed.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    int fd = open(argv[1], O_RDWR);
    volatile unsigned long *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (done == MAP_FAILED) return 2;
    for (unsigned long i = 0;; i++) {
        void *volatile block = malloc(i % 1000 + 1);
        done[0]++;
        if (i % 3) free(block), done[1]++;
        if (i % 1000 == 999) usleep(100);
    }
}
