// A program that runs while somebody attaches to it. Threads allocate and free at random, and check what they wrote, as
// well as a vector register, errno and the bytes below their stack pointer.
// Lines on standard input: `count` makes all threads stand still, prints what they have done so far, and lets them go on;
// `quit` ends them and prints a checksum of errors, which is 0.
#include <errno.h>
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 256

static int threads;
static volatile int quits, stops;
static pthread_barrier_t stopped, counted;
static struct books {
  uint64_t allocs, frees, reallocs, bytes, errors;
} __attribute__((aligned(64))) books[64];

__attribute__((noinline)) static void *take(size_t size) { return malloc(size); }
__attribute__((noinline)) static void *take_zeroed(size_t size) { return calloc(1, size); }
__attribute__((noinline)) static void *resize(void *block, size_t size) { return realloc(block, size); }
__attribute__((noinline)) static void give(void *block) { free(block); }

static void check(struct books *mine, const unsigned char *block, size_t size, unsigned char value) {
  for (size_t i = 0; i < size; i += 61)
    mine->errors += block[i] != value;
}

static void *work(void *argument) {
  long number = (long)argument;
  struct books *mine = &books[number];
  unsigned seed = number * 77 + 1;
  unsigned char *blocks[BLOCKS] = {0};
  size_t sizes[BLOCKS];
  __m128i lanes = _mm_set1_epi32(number + 5);
  while (!quits) {
    if (stops) {
      pthread_barrier_wait(&stopped);
      pthread_barrier_wait(&counted);
    }
    errno = number + 1000;
    volatile unsigned canary[8];
    for (int i = 0; i < 8; i++)
      canary[i] = seed + i;
    asm volatile("" : "+x"(lanes));
    seed = seed * 1103515245 + 12345;
    int at = (seed >> 8) % BLOCKS;
    unsigned char value = at + number;
    size_t size = 1 + ((seed >> 16) & 1023);
    if (!blocks[at]) {
      blocks[at] = seed & 0x80 ? take_zeroed(size) : take(size);
      sizes[at] = size;
      mine->allocs++;
      mine->bytes += size;
      memset(blocks[at], value, size);
    } else if ((seed >> 4 & 7) == 0) {
      check(mine, blocks[at], sizes[at], value);
      blocks[at] = resize(blocks[at], size);
      sizes[at] = size;
      mine->reallocs++;
      mine->bytes += size;
      memset(blocks[at], value, size);
    } else {
      check(mine, blocks[at], sizes[at], value);
      give(blocks[at]);
      blocks[at] = 0;
      mine->frees++;
    }
    for (int i = 0; i < 8; i++)
      mine->errors += canary[i] != canary[0] + i;
    asm volatile("" : "+x"(lanes));
    mine->errors += _mm_cvtsi128_si32(lanes) != number + 5;
    mine->errors += errno != number + 1000;
  }
  for (int i = 0; i < BLOCKS; i++)
    give(blocks[i]);
  return NULL;
}

// One line, byte by byte: the next one may be there already.
static ssize_t next_line(char *line, size_t size) {
  size_t len = 0;
  while (len < size && read(0, line + len, 1) == 1)
    if (line[len++] == '\n')
      break;
  return len;
}

int main(int count, char **arguments) {
  threads = count > 1 ? atoi(arguments[1]) : 1;
  pthread_barrier_init(&stopped, NULL, threads + 1);
  pthread_barrier_init(&counted, NULL, threads + 1);
  pthread_t ids[64];
  for (long i = 0; i < threads; i++)
    pthread_create(&ids[i], NULL, work, (void *)i);
  // Unbuffered, on the stack: the counts are those of the threads alone.
  char line[64];
  for (ssize_t len; (len = next_line(line, sizeof line - 1)) > 0;) {
    if (line[0] == 'q')
      break;
    stops = 1;
    pthread_barrier_wait(&stopped);
    stops = 0;
    struct books sum = {0};
    for (int i = 0; i < threads; i++) {
      sum.allocs += books[i].allocs;
      sum.frees += books[i].frees;
      sum.reallocs += books[i].reallocs;
      sum.bytes += books[i].bytes;
      sum.errors += books[i].errors;
    }
    char text[200];
    int written = snprintf(text, sizeof text, "%lu %lu %lu %lu %lu\n", sum.allocs, sum.frees, sum.reallocs, sum.bytes,
                           sum.errors);
    // The answer is read before the threads go on: whoever reads it may do something while they stand still.
    if (write(1, text, written) != written || next_line(line, sizeof line) <= 0)
      return 2;
    pthread_barrier_wait(&counted);
  }
  quits = 1;
  for (int i = 0; i < threads; i++)
    pthread_join(ids[i], NULL);
  uint64_t errors = 0;
  for (int i = 0; i < threads; i++)
    errors += books[i].errors;
  printf("errors %lu\n", errors);
  return errors != 0;
}
