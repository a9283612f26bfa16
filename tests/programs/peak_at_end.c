// Has a look at 32 MiB of blocks; 100 ms later it has one block more, frees all of them, and ends at once.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tracehound.h"

enum { BLOCKS = 256, BYTES = 128 * 1024 };

int main(void) {
  static char *blocks[BLOCKS + 1];
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = memset(malloc(BYTES), 1, BYTES);
  tracehound_look("full");
  usleep(100000);
  blocks[BLOCKS] = malloc(100);
  for (int i = 0; i <= BLOCKS; i++)
    free(blocks[i]);
  return 0;
}
