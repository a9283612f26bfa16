// Keeps so many blocks of so many bytes; says "ready"; with "stay" it then runs until it is killed, and with "fork" a
// child of its own does, too.
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
    if (strcmp(argv[3], "exit") != 0) {
        for (;;) pause();
    }
    return 0;
}
