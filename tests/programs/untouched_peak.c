// A thousand blocks that stay, and a large one that is never touched and freed at once: no page is looked at while it lives.
#include <stdlib.h>

static void *volatile kept[1000];

int main(void) {
    for (int i = 0; i < 1000; i++) kept[i] = malloc(100);
    void *volatile large = malloc(3 << 20);
    free(large);
    for (int i = 0; i < 1000; i += 2) free(kept[i]);
    return 0;
}
