// Dumps core in its working folder; the exit status tells whether the core was written.
#include "truth.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

int main(void) {
    struct rlimit enough = {1L << 30, 1L << 30};
    setrlimit(RLIMIT_CORE, &enough);
    say("dumpable: %d", prctl(PR_GET_DUMPABLE));
    for (int i = 0; i < 100; i++) {
        void *block = NEW(1000);
        KEEP(block);
    }
    say_truth("total");
    abort();
}
