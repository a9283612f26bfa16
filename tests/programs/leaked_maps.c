// Maps again and again and never unmaps; beside it a pool that is mapped once, mappings that are given back, threads' stacks,
// and an allocator that lays its blocks out in mappings.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *map(size_t bytes) {
  void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) abort();
  return mapped;
}

__attribute__((noinline)) static void grow_index(void) { memset(map(3 << 16), 1, 3 << 16); }
__attribute__((noinline)) static void reserve_pool(void) { memset(map(1 << 20), 1, 1 << 20); }
__attribute__((noinline)) static void borrow_page(void) { munmap(map(1 << 16), 1 << 16); }

static void *work(void *unused) {
  free(malloc(100));
  return unused;
}

int main(void) {
  reserve_pool();
  for (int i = 0; i < 40; i++) {
    grow_index();
    borrow_page();
    // glibc maps these by itself.
    char *volatile large = malloc(1 << 20);
    if (i % 2) free(large);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
    pthread_join(thread, NULL);
  }
  return 0;
}
