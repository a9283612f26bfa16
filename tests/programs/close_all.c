// Closes every descriptor by hand, by close_range and by closefrom, and goes on allocating; new descriptors get the
// numbers they would get anyway.
#include "truth.h"
#include <fcntl.h>

static void allocate(void) {
    for (int i = 0; i < 2000; i++) {
        void *block = NEW(333);
        FREE(block, 333);
    }
}

static void next_descriptor(const char *when) {
    int fd = open("/dev/null", O_RDONLY);
    say("%s: descriptor %d", when, fd);
    close(fd);
}

int main(void) {
    next_descriptor("at start");
    allocate();
    for (int fd = 3; fd < 4096; fd++) close(fd);
    next_descriptor("after close");
    allocate();
    say("close_range: %d", close_range(3, ~0U, 0));
    next_descriptor("after close_range");
    allocate();
    closefrom(3);
    next_descriptor("after closefrom");
    allocate();
    void *kept = NEW(999);
    say_truth("total");
    return kept ? 0 : 1;
}
