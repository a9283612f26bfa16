// Opens a library in the way of the second argument and lets it allocate: now, deepbind, lazily (the same), dlmopen, origin
// (by its bare name, which only the program's own $ORIGIN search path knows).
#include "truth.h"
#include <dlfcn.h>
#ifndef __GLIBC__
// musl has neither, and nothing asks for them there.
#define RTLD_DEEPBIND 0
#define LM_ID_NEWLM 0
#define dlmopen(space, path, flags) NULL
#endif

int main(int argc, char **argv) {
    MUST(argc > 2);
    const char *way = argv[2];
    void *library = NULL;
    if (!strcmp(way, "now")) library = dlopen(argv[1], RTLD_NOW);
    if (!strcmp(way, "deepbind")) library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!strcmp(way, "lazily")) library = dlopen(argv[1], RTLD_LAZY | RTLD_DEEPBIND);
    if (!strcmp(way, "dlmopen")) library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!strcmp(way, "origin")) library = dlopen("libacceptance_plugin.so", RTLD_NOW);
    if (!library) say("%s", dlerror());
    MUST(library);
    void *(*block)(void) = (void *(*)(void))dlsym(library, "plugin_block");
    void (*release)(void *) = (void (*)(void *))dlsym(library, "plugin_free");
    MUST(block && release);
    void *blocks[20];
    for (int i = 0; i < 20; i++) {
        blocks[i] = block();
        MUST(blocks[i]);
        memset(blocks[i], 1, 3000);
    }
    for (int i = 0; i < 20; i++) release(blocks[i]);
    void *(*by_variable)(void) = (void *(*)(void))dlsym(library, "plugin_block_by_variable");
    if (by_variable) release(by_variable());
    MUST(dlopen("/nonexistent/library.so", RTLD_NOW) == NULL);
    say("error: %s", dlerror());
    MUST(dlsym(library, "no_such_symbol") == NULL && dlerror() && !dlerror());
    MUST(dlclose(library) == 0);
    say("loaded: %s", way);
    if (!strcmp(way, "now") || !strcmp(way, "origin")) say("truth function plugin_block_one 21 63000");
    return 0;
}
