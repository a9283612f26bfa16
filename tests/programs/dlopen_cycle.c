// Loads two libraries in turn, 40 times each: they come to lie at the same addresses, and each block is still
// attributed to the library that was there at that time. Arguments: the two libraries.
// musl never unloads a library: its constructor runs once, and its destructor at the end.
#include "truth.h"
#include <dlfcn.h>
#include <link.h>

#ifdef __GLIBC__
enum { LOADS = 40 };
#else
enum { LOADS = 1 };
#endif

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
    say("truth function plugin_block_one %d %d", 80 + LOADS, (80 + LOADS) * 3000);
    say("truth function plugin_block_two %d %d", 80 + LOADS, (80 + LOADS) * 4000);
    say("truth size 3000 %d", 80 + LOADS);
    say("truth size 4000 %d", 80 + LOADS);
    say("truth stack 3000 plugin_block_one plugin_block");
    say("truth stack 4000 plugin_block_two plugin_block");
    say("truth frees plugin_free %d", 80 + 2 * LOADS);
    say("truth leaked plugin_block 0 0");
    return 0;
}
