// Leaks what libc keeps one of by design: 200 threads that nobody joins, streams that nobody closes, converters of
// character sets; or a few of them.
#include <iconv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *work(void *unused) { return unused; }

__attribute__((noinline)) void handle_request(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 16);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, work, NULL) != 0) abort();
  usleep(1000);
}

__attribute__((noinline)) void log_line(void) {
  FILE *file = fopen("/dev/null", "w");
  if (file == NULL) abort();
  fputs("x", file);
}

__attribute__((noinline)) void convert(void) {
  if (iconv_open("UTF-16", "ISO-8859-1") == (iconv_t)-1) abort();
}

int main(int count, char **words) {
  if (count != 2) return 2;
  int few = strcmp(words[1], "few") == 0;
  for (int i = 0; i < (few ? 4 : 200); i++) {
    if (few || strcmp(words[1], "threads") == 0) handle_request();
    if (few || strcmp(words[1], "streams") == 0) log_line();
    if (few || strcmp(words[1], "converters") == 0) convert();
  }
  return 0;
}
