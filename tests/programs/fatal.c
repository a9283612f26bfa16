// Ends by the signal of the argument after 2,000 allocations; nothing that had completed may be missing. A second
// argument installs a handler that allocates and then lets the default action happen.
#include "truth.h"
#include <signal.h>
#include <sys/resource.h>

NOINLINE void *counted_block(size_t size) { return NEW(size); }

static void last_words(int number) {
    void *block = counted_block(555);
    KEEP(block);
    say("handler of %d", number);
    say_truth("total");
    signal(number, SIG_DFL);
    raise(number);
}

int main(int argc, char **argv) {
    int number = argc > 1 ? atoi(argv[1]) : SIGTERM;
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    // Whoever started the tests may have had it ignored, as nohup has.
    signal(number, argc > 2 ? last_words : SIG_DFL);
    for (int i = 0; i < 2000; i++) {
        void *block = counted_block(100 + (size_t)i % 50);
        if (i % 2) FREE(block, 100 + (size_t)i % 50);
    }
    if (argc <= 2) say_truth("total");
    if (number == SIGABRT) abort();
    if (number == SIGSEGV) *(volatile int *)8 = 1;
    if (number == SIGILL) __builtin_trap();
    raise(number);
    return 0;
}
