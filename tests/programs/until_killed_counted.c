// Allocates 3,000 blocks, and kills itself.
#include <signal.h>
#include <stdlib.h>

int main(void) {
  for (int i = 0; i < 3000; i++) {
    char *volatile block = malloc(100 + i * 7919 % 2000);
    if (i % 2) free(block);
  }
  return raise(SIGKILL);
}
