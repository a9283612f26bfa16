// Keeps so many blocks of so many bytes; says "ready"; with "stay" it then runs until it is killed, and with "fork" a
// child of its own does, too; with "eat" it waits for a byte on its input, and then keeps blocks that it writes into for
// as long as there is memory.
#include "truth.h"

NOINLINE void *kept_block(size_t size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

int main(int argc, char **argv) {
    MUST(argc > 3);
    long count = atol(argv[1]);
    size_t size = (size_t)atol(argv[2]);
    for (long i = 0; i < count; i++) kept_block(size);
    if (strcmp(argv[3], "fork") == 0 && fork() == 0) {
        for (;;) pause();
    }
    MUST(write(1, "ready\n", 6) == 6);
    if (strcmp(argv[3], "eat") == 0) {
        char byte;
        MUST(read(0, &byte, 1) == 1);
        for (;;) memset(kept_block(1 << 16), 1, 1 << 16);
    }
    if (strcmp(argv[3], "exit") != 0) {
        for (;;) pause();
    }
    return 0;
}
