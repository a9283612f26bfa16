// An IFUNC resolver that allocates while the loader is still relocating.
#include "truth.h"

static int three(void) { return 3; }
static void *resolved_with;

NOINLINE static void *resolver_block(void) {
    void *block = malloc(2345);
    KEEP(block);
    return block;
}

static int (*choose(void))(void) {
    resolved_with = resolver_block();
    return three;
}

int chosen(void) __attribute__((ifunc("choose")));

int main(void) {
    int value = chosen();
    void *block = NEW(1000);
    MUST(block);
    say("chosen: %d, with a block: %d", value, resolved_with != NULL);
    say("truth size 2345 1");
    say("truth size 1000 1");
    return value;
}
