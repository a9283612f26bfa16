// A library around the C library's malloc: appends a line to the file that LARGE names for each call for 64 KiB and more.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t size);

void *malloc(size_t size) {
    const char *path = size >= 65536 ? getenv("LARGE") : NULL;
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        if (write(fd, "large\n", 6) != 6) abort();
        close(fd);
    }
    return __libc_malloc(size);
}
