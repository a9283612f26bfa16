/* Leaks in two functions, and says that one of them does not count. */
#include <stdlib.h>

void *kept[2];

const char *__lsan_default_suppressions(void) { return "# by design\nleak:^known_leak$\n"; }

__attribute__((noinline)) void known_leak(void) { kept[0] = malloc(1000); }
__attribute__((noinline)) void real_leak(void) { kept[1] = malloc(30); }

int main(void) {
    known_leak();
    real_leak();
    return 0;
}
