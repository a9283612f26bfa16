/* What a driver says at its end: how many pairs it made and the most memory it ever held. Allocates nothing. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void report(unsigned long pairs)
{
    static char status[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t len = fd < 0 ? 0 : read(fd, status, sizeof status - 1);
    unsigned long peak_kib = 0;
    char line[96];
    if (fd >= 0)
        close(fd);
    status[len > 0 ? len : 0] = 0;
    const char *at = strstr(status, "VmHWM:");
    if (at)
        sscanf(at, "VmHWM: %lu", &peak_kib);
    len = snprintf(line, sizeof line, "pairs %lu\npeak_kib %lu\n", pairs, peak_kib);
    if (write(STDOUT_FILENO, line, (size_t)len) != len)
        _exit(1);
}
