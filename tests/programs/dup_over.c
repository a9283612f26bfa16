// Takes every descriptor number from 3 to 1100 for a file of its own with dup2 and writes through each: whatever
// was there before, the program's file gets all of it and nothing else.
#include "truth.h"
#include <fcntl.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    void *first = NEW(10);
    int fd = open("mine", O_CREAT | O_RDWR | O_TRUNC, 0600);
    MUST(fd >= 0);
    for (int number = 3; number < 1100; number++) MUST(number == fd || dup2(fd, number) == number);
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 50; k++) {
            void *block = NEW(77);
            FREE(block, 77);
        }
        usleep(1000);
    }
    for (int number = 3; number < 1100; number++) MUST(write(number, "x", 1) == 1);
    struct stat status;
    MUST(fstat(fd, &status) == 0);
    say("the program's file holds %ld bytes", (long)status.st_size);
    for (int number = 3; number < 1100; number++) MUST(close(number) == 0);
    FREE(first, 10);
    say_truth("total");
    return 0;
}
