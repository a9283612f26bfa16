// Loads two libraries in turn, 40 times each: they come to lie at the same addresses, and each block is still
// attributed to the library that was there at that time. Arguments: the two libraries.
#include "truth.h"
#include <dlfcn.h>
#include <link.h>

int main(int argc, char **argv) {
    MUST(argc > 2);
    unsigned long bases[2][40];
    unsigned long shared = 0;
    for (int round = 0; round < 40; round++) {
        for (int which = 0; which < 2; which++) {
            void *library = dlopen(argv[1 + which], RTLD_NOW | RTLD_LOCAL);
            if (!library) say("%s", dlerror());
            MUST(library);
            void *(*block)(void) = (void *(*)(void))dlsym(library, "plugin_block");
            void (*release)(void *) = (void (*)(void *))dlsym(library, "plugin_free");
            struct link_map *map = library;
            bases[which][round] = map->l_addr;
            MUST(block && release);
            void *first = block();
            void *second = block();
            release(first);
            free(second);
            MUST(dlclose(library) == 0);
        }
    }
    for (int round = 0; round < 40; round++) shared += bases[0][round] == bases[1][round];
    say("the libraries shared addresses: %s", shared ? "yes" : "no");
    say("truth function plugin_block_one 120 360000");
    say("truth function plugin_block_two 120 480000");
    say("truth size 3000 120");
    say("truth size 4000 120");
    say("truth stack 3000 plugin_block_one plugin_block");
    say("truth stack 4000 plugin_block_two plugin_block");
    say("truth frees plugin_free 160");
    say("truth leaked plugin_block 0 0");
    return 0;
}
