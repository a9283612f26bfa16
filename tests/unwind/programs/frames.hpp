// What the directed cases have in common.
#pragma once
#include "tree.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

struct Backtrace {
    uint32_t node = 0;
    int flags = 0;
    std::vector<uint64_t> pcs;

    explicit Backtrace(uint64_t captured) : node((uint32_t)captured), flags((int)(captured >> 32)) {
        static thread_local std::vector<uint64_t> buffer(1 << 20);
        size_t count = probe_pcs(node, buffer.data(), buffer.size());
        pcs.assign(buffer.begin(), buffer.begin() + (long)count);
    }
    size_t depth() const { return pcs.size(); }
    // Whether some frame lies in `function`, known by its address and size.
    bool has(const void *function, size_t bytes) const {
        for (uint64_t pc : pcs)
            if (pc - 1 - (uint64_t)function < bytes)
                return true;
        return false;
    }
};

inline int failures;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
        }                                                                                                              \
    } while (0)
