/* Sizes and addresses as large programs have them: each pair frees one of 20,000 blocks at random and allocates 16 to
 * 4,096 bytes at random in its place: sizes PAIRS */
#include "report.h"
#include <stdint.h>
#include <stdlib.h>

enum { SLOTS = 20000 };

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int argc, char **argv)
{
    static char *slots[SLOTS];
    if (argc != 2)
        return 2;
    unsigned long pairs = strtoul(argv[1], NULL, 10);
    for (unsigned long i = 0; i < pairs; i++) {
        char **slot = &slots[next() % SLOTS];
        free(*slot);
        *slot = malloc(16 + next() % 4081);
        **slot = 1;
    }
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
    report(pairs);
    return 0;
}
