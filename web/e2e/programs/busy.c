/* So many allocations and frees that reading them takes a while. */
#include <stdlib.h>

int main(void) {
  for (unsigned i = 0; i < 8000000; i += 1) {
    void *block = malloc(16 + i % 64);
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
  }
  return 0;
}
