// Callers' states that have so many stacks that these are told apart by the hash of their words.
#include "directed.hpp"
#include <algorithm>
#include <alloca.h>

namespace {

using Leaf = uint64_t (*)(unsigned which);
const unsigned kPaths = 256;

// One of 256 stacks, told apart by return addresses alone, above a call of `leaf`.
__attribute__((noinline)) uint64_t branches(unsigned path, int left, Leaf leaf, unsigned which) {
    if (left == 0)
        return leaf(which);
    uint64_t result;
    if (path >> (left - 1) & 1) {
        result = branches(path, left - 1, leaf, which);
        asm volatile("# one" : "+r"(result));
    } else {
        result = branches(path, left - 1, leaf, which);
        asm volatile("# zero" : "+r"(result));
    }
    return result;
}

// Each of the stacks with both kinds of `leaf`, again and again; `judge` sees every backtrace.
void each_again(Leaf leaf, void (*judge)(unsigned path, unsigned which, const Backtrace &trace)) {
    Walk walk{};
    walk.random = 91;
    for (int i = 0; i < 32 * (int)kPaths && failures < 4; i++) {
        unsigned path = next_random(&walk) % kPaths, which = next_random(&walk) % 2;
        judge(path, which, Backtrace(branches(path, 8, leaf, which)));
    }
}

// Two calls in one function, hence with one sp and the same words.
uint64_t two_calls(unsigned which) {
    uint64_t result;
    if (which) {
        result = probe();
        asm volatile("# one" : "+r"(result));
    } else {
        result = probe();
        asm volatile("# two" : "+r"(result));
    }
    return result;
}

uint32_t nodes[kPaths][2];
uint64_t innermost[2];

void same_node_each_time(unsigned path, unsigned which, const Backtrace &trace) {
    uint32_t &node = nodes[path][which];
    node = node ? node : trace.node;
    EXPECT(trace.node == node && trace.flags == 0);
    innermost[which] = innermost[which] ? innermost[which] : trace.pcs[0];
    EXPECT(trace.pcs[0] == innermost[which]);
}

void case_signatures_of_two_calls() {
    each_again(two_calls, same_node_each_time);
    EXPECT(innermost[0] != innermost[1]);
    std::vector<uint32_t> all(&nodes[0][0], &nodes[0][0] + 2 * kPaths);
    std::sort(all.begin(), all.end());
    EXPECT(all[0] != 0 && std::adjacent_find(all.begin(), all.end()) == all.end());
    EXPECT(probe_stat(STAT_SIGNATURES) > 2 * kPaths);
}

// Equal words at equal places: only rbp tells that the second kind has a frame more.
uint64_t by_rbp(unsigned which) {
    return call_either(which ? (void *)fixed_then_room : (void *)frame_with_room, which ? 64 : 96, (void *)probe);
}

size_t depth_by_rbp;

void one_frame_more(unsigned, unsigned which, const Backtrace &trace) {
    depth_by_rbp = depth_by_rbp ? depth_by_rbp : trace.depth() - which;
    EXPECT(trace.depth() == depth_by_rbp + which);
}

void case_signatures_with_rbp() { each_again(by_rbp, one_frame_more); }

// --- the same states on a stack that is not the thread's own and ends earlier the second time

char *innermost_room;

uint64_t probe_alone(unsigned) { return probe(); }

void from_the_same_place() {
    size_t size = (size_t)((char *)__builtin_frame_address(0) - innermost_room);
    volatile char *room = (volatile char *)alloca(size);
    room[0] = 1;
    size_t depth = 0;
    for (int again = 0; again < 4; again++)
        for (unsigned path = 0; path < kPaths && failures < 4; path++) {
            Backtrace trace(branches(path, 8, probe_alone, 0));
            depth = depth ? depth : trace.depth();
            EXPECT(trace.depth() == depth);
        }
}

void case_signatures_of_a_shorter_stack() {
    const size_t longer = 256 << 10, shorter = 64 << 10;
    char *map = (char *)mmap(nullptr, longer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    innermost_room = map + (56 << 10);
    for (size_t bytes : {longer, shorter}) {
        if (bytes == shorter)
            mprotect(map + shorter, longer - shorter, PROT_NONE);
        OnStack on{};
        getcontext(&on.own);
        on.own.uc_stack.ss_sp = map;
        on.own.uc_stack.ss_size = bytes;
        on.own.uc_link = &on.back;
        makecontext(&on.own, from_the_same_place, 0);
        swapcontext(&on.back, &on.own);
    }
}

} // namespace

const DirectedCases signature_cases = {
    {"signatures-of-two-calls", case_signatures_of_two_calls},
    {"signatures-with-rbp", case_signatures_with_rbp},
    {"signatures-of-a-shorter-stack", case_signatures_of_a_shorter_stack},
};
