// mremap that leaves the old range mapped: of private memory, which is empty then, and of shared memory, which is there
// twice.
#include "truth.h"
#include <sys/mman.h>

enum { PAGE = 4096, READ_WRITE = PROT_READ | PROT_WRITE };

int main(void) {
    char *private = mmap(NULL, 301 * PAGE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(private != MAP_FAILED);
    private[0] = 1;
    char *moved = mremap(private, 301 * PAGE, 301 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    MUST(moved != MAP_FAILED && moved != private && moved[0] == 1 && private[0] == 0);
    char *shared = mmap(NULL, 302 * PAGE, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    shared[0] = 2;
    char *twice = mremap(shared, 0, 303 * PAGE, MREMAP_MAYMOVE);
    MUST(twice != MAP_FAILED && twice[0] == 2 && shared[0] == 2);
    say("truth event map %d 2", 301 * PAGE);
    say("truth event map %d 1", 302 * PAGE);
    say("truth event map %d 1", 303 * PAGE);
    say("truth events remap 0");
    say("truth events unmap 0");
    say_truth("total");
    return 0;
}
