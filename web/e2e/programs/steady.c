/* Allocates and frees until it is killed, and keeps a little. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *kept[1 << 16];

void work(unsigned i) {
  void *block = malloc(1000 + i % 5000);
  if (block) memset(block, 1, 1000);
  if (i % 10 == 0) kept[(i / 10) & 0xffff] = block;
  else free(block);
}

int main(void) {
  struct timespec time = {0, 2000000};
  for (unsigned i = 0;; i += 1) {
    work(i);
    nanosleep(&time, NULL);
  }
}
