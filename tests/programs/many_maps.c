// 60,000 mappings at once, so many that the kernel's limit of 65,530 is near: neighbours differ in protection, so the
// kernel cannot merge them.
#include "truth.h"
#include <sys/mman.h>

enum { MAPS = 60000, PAGE = 4096 };

int main(void) {
    char *room = mmap(NULL, (size_t)MAPS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(room != MAP_FAILED);
    long made = 0, gone = 0;
    for (long i = 0; i < MAPS; i++) {
        int protection = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        void *one = mmap(room + i * PAGE, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        made += one == room + i * PAGE;
    }
    say("made %ld", made);
    for (int i = 0; i < 100; i++) {
        void *block = NEW(1000);
        FREE(block, 1000);
    }
    for (long i = 0; i < MAPS; i++) gone += munmap(room + i * PAGE, PAGE) == 0;
    say("gone %ld", gone);
    say("truth event map %d %d", PAGE, MAPS);
    say("truth event unmap %d %d", PAGE, MAPS);
    say_truth("total");
    return 0;
}
