// sbrk and brk, up, down and impossible. The program does not use malloc, so the break is its own.
#include "truth.h"
#include <stdint.h>

int main(void) {
    char *start = sbrk(0);
    MUST(sbrk(3 << 20) == start);
    memset(start, 1, 3 << 20);
    MUST(sbrk(-(1 << 20)) == start + (3 << 20));
    MUST(brk(start + (5 << 20)) == 0 && sbrk(0) == start + (5 << 20));
    MUST(brk(start) == 0 && sbrk(0) == start);
    errno = 0;
    void *result = sbrk(INTPTR_MAX);
    say("impossible sbrk: %d, errno %d", result == (void *)-1, errno);
    errno = 0;
    int code = brk((void *)-4096L);
    say("impossible brk: %d, errno %d", code, errno);
    MUST(sbrk(0) == start);
    say("truth events brk 4");
    say_truth("total");
    return 0;
}
