// Has 48 MiB of mappings of its own beside 32 MiB of blocks, and gives the mappings back before it ends. With an argument, so
// many looks have been asked for before that the recorder has no time for one at the mappings, which are there for 200 ms.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tracehound.h"

#define MIB (1 << 20)

int main(int argc, char **argv) {
  int looks = argc > 1 ? atoi(argv[1]) : 0;
  for (int i = 0; i < looks; i++)
    tracehound_look("early");
  char *mapped = mmap(NULL, 48 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return 1;
  memset(mapped, 1, 48 * MIB);
  for (int i = 0; i < 512; i++)
    memset(malloc(64 * 1024), 1, 64 * 1024);
  if (looks)
    usleep(200000);
  else
    tracehound_look("high");
  munmap(mapped, 48 * MIB);
  tracehound_look("low");
  free(malloc(1));
  return 0;
}
