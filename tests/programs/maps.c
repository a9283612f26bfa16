// mmap, mmap64, munmap and mremap, succeeding and failing; every length is its own so that it can be found again.
#include "truth.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

int main(void) {
    void *null = NULL;
    int rw = PROT_READ | PROT_WRITE, private_anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    char *a = mmap(NULL, 101 * PAGE, rw, private_anonymous, -1, 0);
    char *b = mmap64(NULL, 102 * PAGE, rw, private_anonymous, -1, 0);
    int fd = open("/proc/self/exe", O_RDONLY);
    char *c = mmap(NULL, 103 * PAGE - 7, PROT_READ, MAP_PRIVATE, fd, 0);
    MUST(a != MAP_FAILED && b != MAP_FAILED && c != MAP_FAILED);
    a[0] = b[0] = 1;

    // A hole in the middle, an unmapped edge, a fixed mapping over both, an unmap over several.
    MUST(munmap(a + 10 * PAGE, 11 * PAGE) == 0);
    MUST(munmap(a + 95 * PAGE, 6 * PAGE) == 0);
    MUST(mmap(a + 5 * PAGE, 12 * PAGE, rw, private_anonymous | MAP_FIXED, -1, 0) == a + 5 * PAGE);
    MUST(a[0] == 1);
    MUST(munmap(a, 105 * PAGE) == 0);

    char *grown = mremap(b, 102 * PAGE, 204 * PAGE, MREMAP_MAYMOVE);
    MUST(grown != MAP_FAILED && grown[0] == 1);
    MUST(mremap(grown, 204 * PAGE, 51 * PAGE, 0) == grown);
    char *room = mmap(NULL, 107 * PAGE, PROT_NONE, private_anonymous, -1, 0);
    MUST(room != MAP_FAILED);
    MUST(mremap(grown, 51 * PAGE, 52 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room && room[0] == 1);
    MUST(munmap(room, 107 * PAGE) == 0);
    MUST(munmap(c, 103 * PAGE - 7) == 0);

    errno = 0, null = mmap(NULL, 0, rw, private_anonymous, -1, 0);
    say("no length: %d, errno %d", null == MAP_FAILED, errno);
    errno = 0, null = mmap(NULL, 109 * PAGE, rw, MAP_PRIVATE, -1, 0);
    say("no file: %d, errno %d", null == MAP_FAILED, errno);
    errno = 0, null = mmap(NULL, SIZE_MAX / 2, rw, private_anonymous, -1, 0);
    say("too long: %d, errno %d", null == MAP_FAILED, errno);
    errno = 0, null = mmap(NULL, 109 * PAGE, rw, MAP_PRIVATE, fd, 1);
    say("odd offset: %d, errno %d", null == MAP_FAILED, errno);
    char *taken = mmap(NULL, 110 * PAGE, rw, private_anonymous, -1, 0);
    errno = 0, null = mmap(taken, 109 * PAGE, rw, private_anonymous | MAP_FIXED_NOREPLACE, -1, 0);
    say("taken: %d, errno %d", null == MAP_FAILED, errno);
    errno = 0;
    say("odd unmap: %d, errno %d", munmap(taken + 1, 109 * PAGE), errno);
    errno = 0, null = mremap(taken, 110 * PAGE, 109 * 1000 * PAGE, MREMAP_FIXED, taken);
    say("odd remap: %d, errno %d", null == MAP_FAILED, errno);
    errno = 77;
    MUST(munmap(taken, 110 * PAGE) == 0 && errno == 77);

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
    say("truth events map 6");
    say("truth events unmap 6");
    say("truth events remap 3");
    say_truth("total");
    return 0;
}
