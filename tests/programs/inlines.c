// A function that the compiler inlines where it optimises, and calls where it does not.
#include "truth.h"

static void *parse_line(int number) {
    void *block = malloc(100 + (size_t)(number % 3));
    KEEP(block);
    return block;
}

NOINLINE static void parse_file(void) {
    for (int number = 0; number < 100; number++) free(parse_line(number));
}

int main(void) {
    parse_file();
    return 0;
}
