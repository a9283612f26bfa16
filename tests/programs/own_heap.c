/* Defines FUNCTION, a function by which a runtime with a heap of its own is known: compile with -DFUNCTION="name". */
#include <stdlib.h>

__attribute__((noinline)) void *lay_out(void) __asm__(FUNCTION);

void *lay_out(void)
{
    return malloc(100);
}

int main(void)
{
    return lay_out() == NULL;
}
