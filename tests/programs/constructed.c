// A library whose constructor allocates, and the program that it is linked into.
#include <stdlib.h>

#ifdef LIBRARY
static void *volatile kept;
static __attribute__((constructor, noinline)) void construct(void) {
    kept = malloc(777);
    free(malloc(778));
}
void *constructed(void) { return kept; }
#else
void *constructed(void);
int main(void) { return constructed() == NULL; }
#endif
