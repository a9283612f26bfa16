// Takes 30 MiB in a way of its argument that no allocator knows: variables, copy (of a file's pages), zero (/dev/zero),
// direct (a system call that passes the C library by).
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tracehound.h"

#define BYTES (30UL << 20)

static char variables[BYTES];

static char *mapped(const char *path, int flags) {
  int file = open(path, flags, 0600);
  if (file < 0 || (flags & O_CREAT && ftruncate(file, BYTES)))
    return MAP_FAILED;
  return mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  char *bytes = variables;
  if (!strcmp(way, "copy"))
    bytes = mapped("copied", O_RDWR | O_CREAT);
  if (!strcmp(way, "zero"))
    bytes = mapped("/dev/zero", O_RDWR);
  if (!strcmp(way, "direct"))
    bytes = (char *)syscall(SYS_mmap, NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED)
    return 1;
  memset(bytes, 1, BYTES);
  if (tracehound_look)
    tracehound_look("here");
  return 0;
}
