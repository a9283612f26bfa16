// Under a limit on its address space (as), the size of its files (fsize) or its descriptors (nofile).
#include "truth.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "as";
    if (!strcmp(which, "as")) {
        // Of its own memory the program gets all that the limit leaves, and clean failures from there on.
        struct rlimit limit = {128 << 20, 128 << 20};
        MUST(setrlimit(RLIMIT_AS, &limit) == 0);
        unsigned long got = 0, refused = 0;
        for (int i = 0; i < 200; i++) {
            errno = 0;
            void *block = NEW(1 << 20);
            if (block) got++;
            else refused += errno == ENOMEM;
        }
        say("refused some: %d, all accounted for: %d, at least 32 MiB: %d", refused > 0, got + refused == 200, got >= 32);
        for (int i = 0; i < 5000; i++) {
            void *block = NEW(500);
            if (block) FREE(block, 500);
        }
        say_truth("total");
        return 0;
    }
    if (!strcmp(which, "fsize")) {
        // Room for the largest block of a recording, 64 Ki records, but not for all of this recording.
        struct rlimit limit = {512 << 10, 512 << 10};
        MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        unsigned long seed = 1;
        for (int i = 0; i < 300000; i++) {
            seed = seed * 6364136223846793005UL + 1442695040888963407UL;
            void *block = NEW(1 + (seed >> 50));
            if (seed >> 63) FREE(block, 1 + (seed >> 50));
        }
        say("under a limit of 512 KiB a file");
        return 0;
    }
    MUST(!strcmp(which, "nofile"));
    int opened = 0;
    while (open("/dev/null", O_RDONLY) >= 0) opened++;
    say("descriptors to be had: %d, errno %d", opened, errno);
    for (int i = 0; i < 3000; i++) {
        void *block = NEW(250);
        FREE(block, 250);
    }
    say_truth("total");
    return 0;
}
