/* Two phases with marks, a pause between them in which nothing is recorded, and a block that grows.
   The second phase works on a request. */
#include "tracehound.h"
#include <stdlib.h>
#include <time.h>

void *kept[64];

static void nap(long milliseconds) {
  struct timespec time = {0, milliseconds * 1000000L};
  nanosleep(&time, NULL);
}

void phase(int first, int last) {
  for (int i = first; i < last; i += 1) {
    kept[i] = malloc(10000);
    nap(5);
  }
}

int main(void) {
  TRACEHOUND(mark, "warm up");
  phase(0, 20);
  TRACEHOUND(stop);
  nap(200);
  TRACEHOUND(start);
  TRACEHOUND(mark, "steady state");
  TRACEHOUND(context_name, 7, "GET /items");
  TRACEHOUND(context_set, 7);
  phase(20, 40);
  TRACEHOUND(context_set, 0);
  char *text = malloc(111);
  if (text) text = realloc(text, 2222);
  if (text) text = realloc(text, 33333);
  kept[60] = text;
  return 0;
}
