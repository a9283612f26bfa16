// Frees nearly everything, and then works on a little for twelve seconds: allocators that give memory back after a while do so.
#include "truth.h"

#define BLOCK (64 * 1024)
#define BLOCKS 1600

static char *blocks[BLOCKS];

int main(void) {
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK), 1, BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 16)
            free(blocks[i]);
    for (int step = 0; step < 120; step++) {
        for (int i = 0; i < 500; i++) {
            char *block = malloc(40000 + i % 100 * 64);
            *(volatile char *)block = 1;
            free(block);
        }
        usleep(100000);
    }
    return 0;
}
