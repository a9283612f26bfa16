/* Allocates nothing; with an argument allocates 100 bytes, says so, and waits for its standard input to close. */
#include <stdlib.h>
#include <unistd.h>

void *volatile block;

int main(int argc, char **argv) {
    (void)argv;
    if (argc < 2) return 0;
    block = malloc(100);
    char byte;
    if (write(1, "ready\n", 6) != 6) return 1;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
