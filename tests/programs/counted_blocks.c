// Allocates blocks of sizes that are known in advance, until it is killed or has made so many; how many are done is in
// a file that outlives it. Arguments: the file, the number (0: without end), and microseconds of rest after each 64
// (1000).
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KEPT = 1000 };

int main(int argc, char **argv) {
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (argc < 3 || ftruncate(file, 4096) != 0)
        return 1;
    volatile uint64_t *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    uint64_t most = strtoull(argv[2], NULL, 10);
    useconds_t rest = argc > 3 ? (useconds_t)strtoul(argv[3], NULL, 10) : 1000;
    static void *kept[KEPT];
    for (uint64_t i = 0; most == 0 || i < most; i++) {
        void **slot = &kept[i * 31 % KEPT];
        free(*slot);
        *slot = malloc(16 + i * 7919 % 3001);
        *done = i + 1;
        if (i % 64 == 0)
            usleep(rest);
    }
    return 0;
}
