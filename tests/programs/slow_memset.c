// Exports a memset that takes its time where a thread that allocates calls it from an object other than the program: a
// recorder that came late, which asks the program first for such functions, may be stopped in the middle of it.
// Lines on standard input: any ends the program, which prints `errors 0`.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern char __executable_start, etext;
static _Thread_local int works;
static volatile int quits;

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memset(void *to, int value, size_t bytes) {
  volatile unsigned char *at = to;
  for (size_t i = 0; i < bytes; i++)
    at[i] = value;
  char *caller = __builtin_return_address(0);
  if (works && (caller < &__executable_start || caller >= &etext)) {
    struct timespec pause = {0, 300 * 1000 * 1000};
    nanosleep(&pause, NULL);
  }
  return to;
}

static void *work(void *unused) {
  works = 1;
  while (!quits)
    free(malloc(100));
  return unused;
}

int main() {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  char line[16];
  if (!fgets(line, sizeof line, stdin))
    return 1;
  quits = 1;
  pthread_join(thread, NULL);
  puts("errors 0");
  return 0;
}
