/* Allocates in functions that a test renames in the file, byte by byte, to names that no compiler gives. Built without
 * debug information, which would keep the true ones. */
#include <stdlib.h>

void *blocks[8];

__attribute__((noinline)) void *renamed_function_1(void) { return blocks[1] = malloc(11); }
__attribute__((noinline)) void *renamed_function_2(void) { return blocks[2] = malloc(22); }
__attribute__((noinline)) void *renamed_function_3(void) { return blocks[3] = malloc(33); }

int main(void) {
    renamed_function_1();
    renamed_function_2();
    renamed_function_3();
    return blocks[3] == NULL;
}
