// Forbids itself to read the processor's time-stamp counter, then allocates.
#include "truth.h"
#include <sys/prctl.h>

int main(void) {
    for (int i = 0; i < 100; i++) {
        void *block = NEW(611);
        FREE(block, 611);
    }
    MUST(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
    for (int i = 0; i < 100; i++) {
        void *block = NEW(612);
        FREE(block, 612);
    }
    say("done");
    return 0;
}
