// Allocates without a pause for its first 150 milliseconds.
#include <stdlib.h>
#include <time.h>

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(void) {
    for (long long end = now() + 150000000; now() < end;)
        for (int i = 0; i < 1000; i++) {
            char *volatile block = malloc(100 + i);
            free(block);
        }
    return 0;
}
