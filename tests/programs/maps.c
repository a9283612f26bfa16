// mmap, mmap64, munmap and mremap, succeeding and failing, within a reserved range; every length is its own so that it
// can be found again.
#include "truth.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096, READ_WRITE = PROT_READ | PROT_WRITE, ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS };

static void failed(const char *what, const void *result) {
    int error = errno;
    say("%s: %s, errno %d", what, result == MAP_FAILED ? "failed" : "worked", error);
    errno = 0;
}

int main(void) {
    char *range = mmap(NULL, 1000 * PAGE, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(range != MAP_FAILED);
    char *a = mmap(range, 101 * PAGE, READ_WRITE, ANONYMOUS | MAP_FIXED, -1, 0);
    char *b = mmap64(NULL, 102 * PAGE, READ_WRITE, ANONYMOUS, -1, 0);
    int fd = open("/proc/self/exe", O_RDONLY);
    char *c = mmap(range + 200 * PAGE, 103 * PAGE - 7, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    MUST(a == range && b != MAP_FAILED && c == range + 200 * PAGE);
    a[0] = b[0] = 1;

    // A hole in the middle, an edge, a fixed mapping over mapped and unmapped, an unmap over several.
    MUST(munmap(a + 10 * PAGE, 11 * PAGE) == 0);
    MUST(munmap(a + 95 * PAGE, 6 * PAGE) == 0);
    MUST(mmap(a + 5 * PAGE, 12 * PAGE, READ_WRITE, ANONYMOUS | MAP_FIXED, -1, 0) == a + 5 * PAGE);
    MUST(a[0] == 1);
    MUST(munmap(a, 105 * PAGE) == 0);

    char *grown = mremap(b, 102 * PAGE, 204 * PAGE, MREMAP_MAYMOVE);
    MUST(grown != MAP_FAILED && grown[0] == 1);
    MUST(mremap(grown, 204 * PAGE, 51 * PAGE, 0) == grown);
    char *room = mmap(range + 400 * PAGE, 107 * PAGE, PROT_NONE, ANONYMOUS | MAP_FIXED, -1, 0);
    MUST(room == range + 400 * PAGE);
    MUST(mremap(grown, 51 * PAGE, 52 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room && room[0] == 1);
    MUST(munmap(room, 107 * PAGE) == 0);
    MUST(munmap(c, 103 * PAGE - 7) == 0);

    errno = 0;
    failed("no length", mmap(NULL, 0, READ_WRITE, ANONYMOUS, -1, 0));
    failed("no file", mmap(NULL, 109 * PAGE, READ_WRITE, MAP_PRIVATE, -1, 0));
    failed("too long", mmap(NULL, SIZE_MAX / 2, READ_WRITE, ANONYMOUS, -1, 0));
    failed("odd offset", mmap(NULL, 109 * PAGE, READ_WRITE, MAP_PRIVATE, fd, 1));
    char *taken = mmap(range + 600 * PAGE, 110 * PAGE, READ_WRITE, ANONYMOUS | MAP_FIXED, -1, 0);
    failed("taken", mmap(taken, 109 * PAGE, READ_WRITE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    failed("odd unmap", munmap(taken + 1, 109 * PAGE) == -1 ? MAP_FAILED : NULL);
    failed("odd remap", mremap(taken, 110 * PAGE, 109 * PAGE, MREMAP_FIXED, taken));
    failed("remap of nothing", mremap(range - 1, PAGE, 109 * PAGE, MREMAP_MAYMOVE));
    errno = 77;
    MUST(munmap(taken, 110 * PAGE) == 0 && errno == 77);

    say("truth event map %d 1", 1000 * PAGE);
    say("truth event map %d 1", 101 * PAGE);
    say("truth event map %d 1", 102 * PAGE);
    say("truth event map %d 1", 12 * PAGE);
    say("truth event map %d 1", 107 * PAGE);
    say("truth event map %d 0", 109 * PAGE);
    say("truth event map %d 1", 110 * PAGE);
    say("truth event unmap %d 1", 11 * PAGE);
    say("truth event unmap %d 1", 6 * PAGE);
    say("truth event unmap %d 1", 105 * PAGE);
    say("truth event unmap %d 1", 107 * PAGE);
    say("truth event unmap %d 0", 109 * PAGE);
    say("truth event unmap %d 1", 110 * PAGE);
    say("truth event remap %d 1", 204 * PAGE);
    say("truth event remap %d 1", 51 * PAGE);
    say("truth event remap %d 1", 52 * PAGE);
    say("truth events map 7");
    say("truth events unmap 6");
    say("truth events remap 3");
    say_truth("total");
    return 0;
}
