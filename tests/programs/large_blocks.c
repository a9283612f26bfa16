/* Few large blocks, one every some milliseconds: far apart in time, and much of the heap each. */
#include <stdlib.h>
#include <unistd.h>

enum { SMALL = 200, LARGE = 24, BYTES = 8 << 20, PAUSE_US = 4000 };

int main(void)
{
    void *volatile small[SMALL];
    void *volatile large[LARGE];
    for (int i = 0; i < SMALL; i++)
        small[i] = malloc(100);
    for (int i = 0; i < LARGE; i++) {
        usleep(PAUSE_US);
        large[i] = malloc(BYTES);
        if (i % 3 == 2) {
            usleep(PAUSE_US);
            free(large[i - 1]);
            large[i - 1] = NULL;
        }
    }
    for (int i = 0; i < LARGE; i++) {
        usleep(PAUSE_US);
        free(large[i]);
    }
    for (int i = 0; i < SMALL; i++)
        free(small[i]);
    return 0;
}
