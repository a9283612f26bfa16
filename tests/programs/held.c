// Blocks that are there before anybody looks: of all sizes, of several threads, aligned and with mappings of their own,
// and between them free ones of every kind: in the threads' caches, the fast bins, the other bins.
// Prints each block's address and usable size, `ready`, and then does on lines of standard input:
// With "shared" all threads have one arena, in which their caches get the free blocks that lie there, 16 bytes too large.
// `free` every second block freed, every fourth of the others resized, new ones made; prints the counts; `quit` ends it.
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 2000

static int threads;
static void *blocks[64][BLOCKS];
static pthread_barrier_t made, freed, ended;

static size_t size_of(unsigned *seed) {
  *seed = *seed * 1103515245 + 12345;
  unsigned kind = *seed >> 16 & 63;
  unsigned more = *seed >> 8 & 0xffff;
  if (kind == 0)
    return 200000 + more * 8;
  if (kind < 8)
    return 1000 + more;
  return 1 + more % 700;
}

static void *work(void *argument) {
  long number = (long)argument;
  unsigned seed = number * 7919 + 3;
  static __thread void *others[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    size_t size = size_of(&seed);
    if (i % 97 == 0) {
      if (posix_memalign(&blocks[number][i], 64 << (i % 7), size))
        abort();
    } else if (i % 501 == 0)
      blocks[number][i] = aligned_alloc(1 << 16, 1 << 18);
    else
      blocks[number][i] = i % 5 ? malloc(size) : calloc(1, size);
    memset(blocks[number][i], 0xaa, size);
    others[i] = malloc(size_of(&seed));
  }
  for (int i = 0; i < BLOCKS; i++)
    free(others[i]);
  pthread_barrier_wait(&made);
  pthread_barrier_wait(&freed);
  for (int i = 0; i < BLOCKS; i++)
    if (i % 2) {
      free(blocks[number][i]);
      blocks[number][i] = NULL;
    } else if (i % 8 == 0)
      blocks[number][i] = realloc(blocks[number][i], 5000);
  pthread_barrier_wait(&ended);
  return NULL;
}

int main(int count, char **arguments) {
  threads = count > 1 ? atoi(arguments[1]) : 1;
  pthread_barrier_init(&made, NULL, threads + 1);
  pthread_barrier_init(&freed, NULL, threads + 1);
  pthread_barrier_init(&ended, NULL, threads + 1);
  setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  if (count > 2) {
    void *large[40];
    mallopt(M_ARENA_MAX, 1);
    for (int i = 0; i < 40; i++) {
      large[i] = malloc(0x298);
      if (!malloc(40))
        abort();
    }
    for (int i = 0; i < 40; i++)
      free(large[i]);
  }
  pthread_t ids[64];
  for (long i = 0; i < threads; i++)
    pthread_create(&ids[i], NULL, work, (void *)i);
  pthread_barrier_wait(&made);
  for (int t = 0; t < threads; t++)
    for (int i = 0; i < BLOCKS; i++)
      printf("%p %zu\n", blocks[t][i], malloc_usable_size(blocks[t][i]));
  printf("ready\n");
  fflush(stdout);
  char line[64];
  if (read(0, line, sizeof line) <= 0)
    return 2;
  pthread_barrier_wait(&freed);
  pthread_barrier_wait(&ended);
  printf("done\n");
  fflush(stdout);
  if (read(0, line, sizeof line) <= 0)
    return 2;
  for (int i = 0; i < threads; i++)
    pthread_join(ids[i], NULL);
  return 0;
}
