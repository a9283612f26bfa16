// Thousands of stacks that one caller's state has: told apart by return addresses at several levels, and now and then by
// frames that have another size while those inside make up for it.
#pragma once
#include "check.hpp"
#include <alloca.h>

#define NOT_MERGED(n) asm volatile("" ::"i"(n) : "memory")

template <int kLevel> struct Bush {
    // One of eight calls, by the path's last three bits.
    __attribute__((noinline)) static void walk(Walk *w, uint64_t path);
};

// Two frames with the same size together.
template <int kLevel, int kRoom> __attribute__((noinline)) void second_of_two(Walk *w, uint64_t path) {
    volatile char room[kRoom];
    room[0] = 1;
    Bush<kLevel - 1>::walk(w, path);
    asm volatile("" ::"r"(room) : "memory");
}

template <int kLevel, int kRoom> __attribute__((noinline)) void first_of_two(Walk *w, uint64_t path) {
    volatile char room[kRoom];
    room[0] = 1;
    second_of_two<kLevel, 320 - kRoom>(w, path);
    asm volatile("" ::"r"(room) : "memory");
}

// A frame whose size only rbp tells.
template <int kLevel> __attribute__((noinline)) void by_rbp(Walk *w, uint64_t path) {
    volatile size_t size = 96;
    char *room = (char *)alloca(size);
    asm volatile("" : "+r"(room) : : "memory");
    Bush<kLevel - 1>::walk(w, path);
    asm volatile("" : "+r"(room) : : "memory");
}

template <> inline void Bush<0>::walk(Walk *w, uint64_t) {
    check(w);
    NOT_MERGED(0);
}

template <int kLevel> void Bush<kLevel>::walk(Walk *w, uint64_t path) {
    uint64_t rest = path >> 3;
    switch (path & 7) {
    case 0:
        Bush<kLevel - 1>::walk(w, rest);
        NOT_MERGED(1);
        break;
    case 1:
        Bush<kLevel - 1>::walk(w, rest);
        NOT_MERGED(2);
        break;
    case 2:
        Bush<kLevel - 1>::walk(w, rest);
        NOT_MERGED(3);
        break;
    case 3:
        first_of_two<kLevel, 64>(w, rest);
        NOT_MERGED(4);
        break;
    case 4:
        first_of_two<kLevel, 256>(w, rest);
        NOT_MERGED(5);
        break;
    case 5:
        by_rbp<kLevel>(w, rest);
        NOT_MERGED(6);
        break;
    case 6:
        Bush<kLevel - 1>::walk(w, rest);
        NOT_MERGED(7);
        break;
    default:
        Bush<kLevel - 1>::walk(w, rest);
        NOT_MERGED(8);
    }
    NOT_MERGED(0);
}

// Random ones of the 4,096 stacks of four levels. Every other time a path without frames of other sizes: most of a state's
// stacks have one layout then, and some another.
inline void walk_bushes(Walk *w, long count) {
    for (long i = 0; i < count; i++) {
        uint64_t path = next_random(w) & 07777;
        if (i % 2)
            for (int level = 0; level < 4; level++)
                if (uint64_t side = path >> 3 * level & 7; side >= 3 && side <= 5)
                    path -= 3ull << 3 * level;
        Bush<4>::walk(w, path);
    }
}
