// Allocates 64 MiB, writes all of it, and gives it back at once. Prints `peak N`: resident memory of no file, bytes, in between.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (64 * 1024)
#define BLOCKS 1024

static char *blocks[BLOCKS];

int main(void) {
  for (int i = 0; i < BLOCKS; i++)
    memset(blocks[i] = malloc(BLOCK), 1, BLOCK);
  long resident = 0, shared = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  if (!statm || fscanf(statm, "%*d %ld %ld", &resident, &shared) != 2)
    return 1;
  for (int i = 0; i < BLOCKS; i++)
    free(blocks[i]);
  fprintf(stderr, "peak %ld\n", (resident - shared) * sysconf(_SC_PAGESIZE));
  return 0;
}
