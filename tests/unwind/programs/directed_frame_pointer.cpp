// rbp is part of the state of a frame: stacks that differ in it alone, or in their outermost function or call site.
#include "directed.hpp"
#include <algorithm>

namespace {

// Two paths with the same (pc, sp) everywhere below: only rbp tells that one has a frame more.
void paths_differ_by_rbp(void *inner) {
    size_t depth[6];
    void *target[2] = {(void *)frame_with_room, (void *)fixed_then_room};
    long room[2] = {96, 64};
    for (volatile int i = 0; i < 6; i++)
        depth[i] = Backtrace(call_either(target[i % 2], room[i % 2], inner)).depth();
    for (int i = 0; i < 6; i += 2)
        EXPECT(depth[i] + 1 == depth[i + 1] && depth[i] == depth[0]);
}

void case_rbp_at_the_top() { paths_differ_by_rbp((void *)probe); }
void case_rbp_kept_inside() { paths_differ_by_rbp((void *)inner_keeps_rbp); }
void case_rbp_saved_inside() { paths_differ_by_rbp((void *)inner_saves_rbp); }

// Frames whose stack pointers differ by a mebibyte and in nothing else. The words of the deeper ones stay where they
// were, and must not be taken for those of the others.
void case_rooms_a_mebibyte_apart() {
    for (volatile int i = 0; i < 4; i++)
        for (long room : {96 + (1l << 20), 96l})
            for (auto middle : {first_of_stack, other_of_stack}) {
                call_either((void *)frame_with_room, room, (void *)middle);
                EXPECT(Backtrace(stack_result).pcs.at(1) - (uint64_t)middle < 32);
            }
}

// The same, with the previous event elsewhere, so that nothing joins with it.
void case_rbp_without_join() {
    size_t depth[6];
    void *target[2] = {(void *)frame_with_room, (void *)fixed_then_room};
    long room[2] = {96, 64};
    for (void *inner : {(void *)probe, (void *)inner_keeps_rbp, (void *)inner_saves_rbp}) {
        for (volatile int i = 0; i < 6; i++) {
            probe();
            depth[i] = Backtrace(call_either(target[i % 2], room[i % 2], inner)).depth();
        }
        for (int i = 0; i < 6; i += 2)
            EXPECT(depth[i] + 1 == depth[i + 1] && depth[i] == depth[0]);
    }
}

void case_rbp_through_a_realigned_frame() { paths_differ_by_rbp((void *)inner_realigned); }

// A realigned frame may have another rbp and another CFA where pc and sp are the same; what it left behind at its old
// place still looks right.
void case_realigned_rbp() {
    void *target[2] = {(void *)realigned_with, (void *)fixed_then_realigned};
    const long room[2] = {552, 520}, places[] = {64, 128, 192, 256};
    for (void *inner : {(void *)probe, (void *)inner_keeps_rbp, (void *)inner_saves_rbp}) {
        size_t depth = Backtrace(call_realigned(target[0], room[0], inner, 64)).depth();
        Walk walk{};
        walk.random = 77;
        for (int i = 0; i < 2000; i++) {
            uint32_t which = next_random(&walk) % 2;
            Backtrace trace(call_realigned(target[which], room[which], inner, places[next_random(&walk) % 4]));
            EXPECT(trace.flags == 0 && trace.depth() == depth + which);
        }
    }
}

// Many callers with the same stack pointer: each has its own node.
#define FOUR(x) x x x x
__attribute__((noinline)) void probe_everywhere(std::vector<uint32_t> &nodes) {
    size_t at = 0;
#define ONE nodes[at++] = (uint32_t)probe();
    FOUR(FOUR(FOUR(FOUR(FOUR(ONE)))))
}
void case_many_callers() {
    std::vector<uint32_t> first, nodes(1024);
    for (volatile int i = 0; i < 4; i++) {
        probe_everywhere(nodes);
        if (i == 0)
            first = nodes;
        EXPECT(first == nodes);
    }
    std::sort(first.begin(), first.end());
    EXPECT(std::unique(first.begin(), first.end()) == first.end());
}

// The outermost function of a stack is another one, all else is the same.
void case_outermost_frames() {
    for (volatile int i = 0; i < 8; i++) {
        auto entry = i % 2 ? other_of_stack : first_of_stack;
        static char *stack = (char *)mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        OnStack on{};
        getcontext(&on.own);
        on.own.uc_stack.ss_sp = stack;
        on.own.uc_stack.ss_size = 65536;
        on.own.uc_link = &on.back;
        makecontext(&on.own, entry, 0);
        swapcontext(&on.back, &on.own);
        Backtrace trace(stack_result);
        EXPECT(trace.flags == 0 && trace.depth() == 3 && trace.has((void *)entry, 32));
    }
}

} // namespace

const DirectedCases frame_pointer_cases = {
    {"rbp-at-the-top", case_rbp_at_the_top},
    {"rbp-at-the-top-far", far_away<case_rbp_at_the_top>},
    {"rbp-without-join-far", far_away<case_rbp_without_join>},
    {"many-callers-far", far_away<case_many_callers>},
    {"rbp-kept-inside", case_rbp_kept_inside},
    {"rbp-saved-inside", case_rbp_saved_inside},
    {"rooms-a-mebibyte-apart", case_rooms_a_mebibyte_apart},
    {"rbp-without-join", case_rbp_without_join},
    {"rbp-through-a-realigned-frame", case_rbp_through_a_realigned_frame},
    {"realigned-rbp", case_realigned_rbp},
    {"many-callers", case_many_callers},
    {"outermost-frames", case_outermost_frames},
};
