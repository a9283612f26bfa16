// Maps single pages, with other rights than their neighbours have, until the kernel gives no more mappings; then it allocates.
#include "truth.h"
#include <sys/mman.h>

int main(void) {
    // The heap is there before.
    void *first = NEW(50);
    int got = 0;
    while (got < 1000000) {
        int rights = got % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        if (mmap(NULL, 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) break;
        got++;
    }
    for (int i = 0; i < 200000; i++) {
        void *block = NEW(100);
        if (block) FREE(block, 100);
    }
    FREE(first, 50);
    // How many there are beside the program's own is the machine's affair.
    say("mapped %s", got > 10000 && got < 1000000 ? "as many as there are" : "too few");
    say_truth("own");
    return 5;
}
