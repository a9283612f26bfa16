// Takes the address of malloc, which in an executable with fixed addresses is a place in the executable. Keeps blocks from
// before, and allocates by the pointer, by a call and in a library; prints the blocks' addresses, "ready", and reads a byte.
#include "truth.h"

static void *(*volatile allocate)(size_t) = malloc;
static void (*volatile release)(void *) = free;

int main(void) {
    void *kept[50];
    for (int i = 0; i < 50; i++) {
        kept[i] = i % 2 ? allocate(300) : malloc(300);
        printf("%lx %d\n", (unsigned long)kept[i], 300);
    }
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
        for (int i = 0; i < 50; i++) release(allocate(77));
        for (int i = 0; i < 50; i++) free(malloc(78));
        for (int i = 0; i < 50; i++) free(strdup("a text of nineteen"));
        printf("done\n");
        fflush(stdout);
    }
    for (int i = 0; i < 50; i++) release(kept[i]);
    return 0;
}
