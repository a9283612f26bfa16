/* malloc/free pairs below call stacks of a known depth: stacks SHAPE PAIRS
 *
 *   reenter10, reenter50  every pair walks down from main's loop: main, loop, levels…, one of 32 leaves
 *   leaf50                the levels stand, only the leaf is entered for every pair: main, levels…, loop, leaf
 *   distinct10            32,768 paths: main, loop, five forks with 8 call sites each, two levels, a leaf
 *
 * Depth counts the frames of this program from main to the caller of malloc, both included. */
#include "report.h"
#include <stdlib.h>

#define OWN_FRAME __attribute__((noipa))
/* Keeps a call from becoming a jump, and each call site from being merged with its like. */
#define STAY(n) __asm__ volatile("" : : "i"(n) : "memory")

static unsigned long pairs;
static void (*bottom)(unsigned long);

#define LEAF(n)                                                                                                        \
    static OWN_FRAME void leaf_##n(unsigned long i)                                                                    \
    {                                                                                                                  \
        unsigned long *volatile block = malloc(16 + 8 * n);                                                            \
        *block = i;                                                                                                    \
        free(block);                                                                                                   \
        STAY(n);                                                                                                       \
    }
#define EACH_8(X, a) X(a##0) X(a##1) X(a##2) X(a##3) X(a##4) X(a##5) X(a##6) X(a##7)
#define EACH_32(X) EACH_8(X, 1) EACH_8(X, 2) EACH_8(X, 3) EACH_8(X, 4)
EACH_32(LEAF)
#define NAME(n) leaf_##n,
static void (*const leaves[32])(unsigned long) = {EACH_32(NAME)};

static OWN_FRAME void level_0(unsigned long i)
{
    bottom(i);
    STAY(0);
}
#define LEVEL(n, below)                                                                                                \
    static OWN_FRAME void level_##n(unsigned long i)                                                                   \
    {                                                                                                                  \
        level_##below(i);                                                                                              \
        STAY(n);                                                                                                       \
    }
LEVEL(1, 0) LEVEL(2, 1) LEVEL(3, 2) LEVEL(4, 3) LEVEL(5, 4) LEVEL(6, 5) LEVEL(7, 6) LEVEL(8, 7) LEVEL(9, 8)
LEVEL(10, 9) LEVEL(11, 10) LEVEL(12, 11) LEVEL(13, 12) LEVEL(14, 13) LEVEL(15, 14) LEVEL(16, 15) LEVEL(17, 16)
LEVEL(18, 17) LEVEL(19, 18) LEVEL(20, 19) LEVEL(21, 20) LEVEL(22, 21) LEVEL(23, 22) LEVEL(24, 23) LEVEL(25, 24)
LEVEL(26, 25) LEVEL(27, 26) LEVEL(28, 27) LEVEL(29, 28) LEVEL(30, 29) LEVEL(31, 30) LEVEL(32, 31) LEVEL(33, 32)
LEVEL(34, 33) LEVEL(35, 34) LEVEL(36, 35) LEVEL(37, 36) LEVEL(38, 37) LEVEL(39, 38) LEVEL(40, 39) LEVEL(41, 40)
LEVEL(42, 41) LEVEL(43, 42) LEVEL(44, 43) LEVEL(45, 44) LEVEL(46, 45)

#define SIDE(n, below)                                                                                                 \
    case n:                                                                                                            \
        below(i >> 3);                                                                                                 \
        STAY(n);                                                                                                       \
        break;
#define FORK(name, below)                                                                                              \
    static OWN_FRAME void name(unsigned long i)                                                                        \
    {                                                                                                                  \
        switch (i & 7) {                                                                                               \
            SIDE(0, below) SIDE(1, below) SIDE(2, below) SIDE(3, below)                                                \
            SIDE(4, below) SIDE(5, below) SIDE(6, below) SIDE(7, below)                                                \
        }                                                                                                              \
        STAY(8);                                                                                                       \
    }
FORK(fork_1, level_1) FORK(fork_2, fork_1) FORK(fork_3, fork_2) FORK(fork_4, fork_3) FORK(fork_5, fork_4)

static OWN_FRAME void one_leaf(unsigned long i) { leaves[i & 31](i); }

static OWN_FRAME void loop(void (*walk)(unsigned long), unsigned long step)
{
    for (unsigned long i = 0; i < pairs; i++)
        walk(i * step);
    STAY(0);
}

static OWN_FRAME void loop_over_leaves(unsigned long unused)
{
    (void)unused;
    for (unsigned long i = 0; i < pairs; i++)
        leaves[i & 31](i);
    STAY(0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *shape = argv[1];
    pairs = strtoul(argv[2], NULL, 10);
    bottom = one_leaf;
    if (!strcmp(shape, "reenter10")) {
        loop(level_6, 1);
    } else if (!strcmp(shape, "reenter50")) {
        loop(level_46, 1);
    } else if (!strcmp(shape, "leaf50")) {
        bottom = loop_over_leaves;
        level_46(0);
    } else if (!strcmp(shape, "distinct10")) {
        /* An odd step goes through all 32,768 paths in an order that no branch predictor learns. */
        bottom = leaf_10;
        loop(fork_5, 20507);
    } else {
        return 2;
    }
    report(pairs);
    return 0;
}
