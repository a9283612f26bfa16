// 60,000 mappings at once, so many that the kernel's limit of 65,530 is near.
#include "truth.h"
#include <sys/mman.h>

enum { MAPS = 60000, PAGE = 4096 };

int main(void) {
    char *room = mmap(NULL, 2L * MAPS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(room != MAP_FAILED);
    MUST(munmap(room, 2L * MAPS * PAGE) == 0);
    long made = 0, gone = 0;
    for (long i = 0; i < MAPS; i++) {
        void *one = mmap(room + 2 * i * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        made += one == room + 2 * i * PAGE;
    }
    say("made %ld", made);
    for (int i = 0; i < 100; i++) {
        void *block = NEW(1000);
        FREE(block, 1000);
    }
    for (long i = 0; i < MAPS; i++) gone += munmap(room + 2 * i * PAGE, PAGE) == 0;
    say("gone %ld", gone);
    say("truth event map %d %d", PAGE, MAPS);
    say("truth event unmap %d %d", PAGE, MAPS);
    say_truth("total");
    return 0;
}
