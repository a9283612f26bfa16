// Forbids itself to write files, as programs do that answer strangers, and goes on to allocate.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int main(void) {
  struct rlimit none = {0, 0};
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &none))
    return 1;
  for (int i = 0; i < 200000; i++) {
    void *volatile block = malloc(30);
    free(block);
  }
  usleep(500000);
  return malloc(333) ? 5 : 2;
}
