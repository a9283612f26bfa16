// Linked twice. As a library (-DLIBRARY): its IFUNC resolver allocates while the loader relocates, before the recorder is
// relocated itself. As a program: allocates in a constructor of high priority, in main, at exit and after it.
#include <stdio.h>
#include <stdlib.h>

#ifdef LIBRARY
void *resolvers_block;
static int five(void) { return 5; }
static int (*choose(void))(void) {
    resolvers_block = malloc(1234);
    resolvers_block = realloc(resolvers_block, 2345);
    free(calloc(10, 10));
    return five;
}
int chosen(void) __attribute__((ifunc("choose")));
int call_chosen(void) { return chosen(); }
__attribute__((destructor)) static void last(void) { free(resolvers_block); }
#else
int call_chosen(void);
static void *volatile kept;
__attribute__((constructor(101))) static void first(void) { kept = malloc(101); }
__attribute__((destructor(101))) static void last(void) { kept = malloc(102); }
static void at_exit(void) { kept = malloc(103); }
int main(void) {
    atexit(at_exit);
    kept = malloc(104);
    return call_chosen();
}
#endif
