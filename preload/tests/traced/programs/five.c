// Five allocations, three of them freed. With an argument, that many bytes more each.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t more = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    void *volatile blocks[5];
    for (int i = 0; i < 5; i++) blocks[i] = malloc(100 + i + more);
    for (int i = 0; i < 3; i++) free(blocks[i]);
    return 7;
}
