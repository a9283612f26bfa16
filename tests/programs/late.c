// Opens a library whose unwind information only its file has, and allocates through it: at once, and, for at most ten
// seconds, until the recorder may have read the file.
#define STACKS_ELSEWHERE
#include "stacks.h"
#include <dlfcn.h>

NOINLINE static void *quiet(unsigned long size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return 1;
    void *(*call)(void *(*)(unsigned long), unsigned long) =
        (void *(*)(void *(*)(unsigned long), unsigned long))dlsym(library, "late_call");
    // What the callers' own frame pointer is must not help.
    call(quiet, 5000);
    for (int i = 0; i < 50; i++) {
        free(call(quiet, 100));
        usleep(20000);
    }
    call(quiet, 6000);
    return 0;
}
