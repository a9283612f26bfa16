// A library to be loaded at run time: NAME is the suffix of its allocating function, SIZE what that asks for.
// A SIMPLE one has no constructor.
#include <stdlib.h>

#define JOIN(a, b) a##b
#define FUNCTION(name) JOIN(plugin_block_, name)

#ifndef SIMPLE
static void *at_load;
#endif

__attribute__((noinline, noclone)) void *FUNCTION(NAME)(void) {
    void *block = malloc(SIZE);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}
__attribute__((noinline, noclone)) void plugin_free(void *block) {
    free(block);
    __asm__ volatile("" : : : "memory");
}
void *plugin_block(void) {
    void *block = FUNCTION(NAME)();
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

// Through a variable, too, which the loader fills in.
void *(*volatile plugin_malloc)(size_t) = malloc;
#ifdef SIMPLE
__attribute__((noinline, noclone)) void *plugin_block_by_variable(void) { return plugin_malloc(SIZE + 1); }
#else
__attribute__((constructor)) static void loaded(void) { at_load = plugin_block(); }
__attribute__((destructor)) static void unloaded(void) { plugin_free(at_load); }
#endif
