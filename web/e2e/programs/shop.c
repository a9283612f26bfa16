/* Two seconds of a small server: sessions that come and go, a cache that leaks, an import that makes the peak,
 * two thousand frames of recursion, and functions whose names are changed to hostile ones after compilation.
 * With an argument: the shop after a change. Its cache grew, its import shrank, coupons are new, recursion is gone. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *hostile_markup(size_t size);
void *long_name(size_t size);

static void nap(long milliseconds) {
  struct timespec time = {0, milliseconds * 1000000L};
  nanosleep(&time, NULL);
}

static void *touch(void *block, size_t size) {
  if (block) memset(block, 1, size);
  return block;
}

void *kept[4096];
int kept_count;

void cache_insert(size_t size) {
  kept[kept_count % 4096] = touch(malloc(size), size);
  kept_count += 1;
}

void *coupons(size_t size) { return touch(malloc(size), size); }

void format_line(void) {
  char *line = touch(malloc(120), 120);
  free(line);
}

void *recurse(int depth) {
  void *block = depth == 0 ? touch(malloc(5000), 5000) : recurse(depth - 1);
  __asm__ volatile("" : : "r"(block) : "memory");
  return block;
}

void *session(void *after) {
  for (int i = 0; i < 150; i += 1) {
    void *buffer = touch(malloc(4096 + 17 * (size_t)i), 64);
    void *markup = hostile_markup(3000);
    for (int j = 0; j < 20; j += 1) format_line();
    cache_insert(after ? 3072 : 2048);
    nap(10);
    free(markup);
    free(buffer);
  }
  return NULL;
}

/* A list that doubles twelve times, with blocks behind it that make it move. */
void grow_list(void) {
  char *list = touch(malloc(64), 64);
  void *behind[12];
  for (int i = 0; i < 12; i += 1) {
    behind[i] = touch(malloc(64), 64);
    list = realloc(list, (size_t)128 << i);
  }
  for (int i = 0; i < 12; i += 1) free(behind[i]);
  free(list);
}

void import_batch(int count) {
  void *rows[200];
  for (int i = 0; i < count; i += 1) {
    rows[i] = touch(malloc(40000), 40000);
    nap(1);
  }
  /* The recorder looks at the pages of the peak, on a busy machine too. */
  nap(250);
  for (int i = 0; i < count; i += 1) free(rows[i]);
}

int main(int count, char **arguments) {
  void *after = count > 1 ? arguments[1] : NULL;
  pthread_t threads[2];
  for (int i = 0; i < 2; i += 1) pthread_create(&threads[i], NULL, session, after);
  nap(300);
  if (!after) free(recurse(2000));
  grow_list();
  void *named = long_name(9000);
  import_batch(after ? 100 : 200);
  void *coupon = after ? coupons(70000) : NULL;
  nap(400);
  free(named);
  if (coupon) kept[0] = coupon;
  for (int i = 0; i < 2; i += 1) pthread_join(threads[i], NULL);
  return 0;
}
