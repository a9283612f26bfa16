// Unwind information that is wrong, missing or too general for a rule: truncated and marked, and no load that faults.
#include "directed.hpp"
#include <pthread.h>

namespace {

__attribute__((noinline)) uint64_t probe_further_in() {
    uint64_t result = probe();
    asm volatile("" : "+r"(result));
    return result;
}
uint64_t *words_inside;
void *run_lies(void *);
// Far inside of the frame that calls it, among words that would do for return addresses.
__attribute__((noinline)) uint64_t probe_below_words() {
    volatile uint64_t words[6000];
    for (volatile uint64_t &word : words)
        word = (uint64_t)run_lies + 4;
    words_inside = (uint64_t *)words + 100;
    uint64_t result = probe();
    asm volatile("" : "+r"(result) : "r"(words));
    return result;
}
void lies_inwards() {
    for (int i = 0; i < 3; i++) {
        EXPECT(Backtrace(lying_save(probe_below_words)).flags & TRUNCATED);
        Backtrace inwards(without_information_with_rbp(probe_below_words, (uint64_t)words_inside));
        EXPECT(inwards.flags & TRUNCATED && !inwards.has((void *)run_lies, 5));
    }
}
void lies() {
    for (int i = 0; i < 3; i++) {
        alignas(8) char crooked[32];
        uint64_t pc = (uint64_t)run_lies + 4, rbp = 0;
        memcpy(crooked + 4, &rbp, 8);
        memcpy(crooked + 12, &pc, 8);
        asm volatile("" ::"r"(crooked) : "memory");
        Backtrace odd(without_information_with_rbp(probe, (uint64_t)crooked + 4));
        EXPECT(odd.flags & TRUNCATED && !odd.has((void *)run_lies, 5));
        EXPECT(Backtrace(standing_frame(probe_further_in)).depth() < 4);
        EXPECT(Backtrace(standing_frame(probe_further_in)).flags & TRUNCATED);
        Backtrace far(lying_frame(probe));
        EXPECT(far.flags & TRUNCATED);
        Backtrace near(shrinking_frame(probe));
        EXPECT(near.flags & TRUNCATED);
        Backtrace nested(lying_frame(probe_nested));
        EXPECT(nested.flags & TRUNCATED);
        for (Probe how : {probe, probe_nested}) {
            EXPECT(Backtrace(standing_frame(how)).depth() < 3);
            EXPECT(Backtrace(standing_frame(how)).flags & TRUNCATED);
            EXPECT(Backtrace(lying_save(how)).flags & TRUNCATED);
        }
    }
}
void *run_lies(void *) {
    lies();
    return nullptr;
}
void case_lying_frames() {
    lies_inwards();
    lies();
    on_small_stack(lies, 24 << 10);
    pthread_t thread;
    pthread_create(&thread, nullptr, run_lies, nullptr);
    pthread_join(thread, nullptr);
}

void bad_rbps() {
    uint64_t here = (uint64_t)__builtin_frame_address(0);
    uint64_t page_end = (here | 4095) + 1;
    static uint64_t heap[64];
    // No frame can be there: below the stack pointer, odd, or not on this stack.
    const uint64_t nowhere[] = {0,         1,          8,          here + 1,        here - 4096,
                                0x1000,    ~0ull,      ~0ull << 3, ~0ull - 15,      1ull << 47,
                                (1ull << 47) - 16, 0xffff800000000000, (uint64_t)heap, here + (1ull << 32)};
    // A frame could be there, if the stack goes on so far; what it holds is garbage.
    const uint64_t perhaps[] = {page_end - 8, page_end, page_end + 4096 - 8, here + (1 << 20), here + (64 << 20)};
    for (int i = 0; i < 3; i++) {
        for (Probe how : {probe, probe_nested}) {
            for (uint64_t rbp : nowhere) {
                EXPECT(Backtrace(with_rbp(how, rbp)).flags & TRUNCATED);
                // Without information an rbp of 0 is the end.
                int expected = rbp == 0 ? HEURISTIC : HEURISTIC | TRUNCATED;
                EXPECT(Backtrace(without_information_with_rbp(how, rbp)).flags == expected);
            }
            for (uint64_t rbp : perhaps) {
                EXPECT(Backtrace(with_rbp(how, rbp)).depth() >= 1);
                EXPECT(Backtrace(without_information_with_rbp(how, rbp)).flags & HEURISTIC);
            }
        }
    }
}
void case_bad_rbp() {
    bad_rbps();
    on_small_stack(bad_rbps);
}

// The same (pc, sp) is cut with one rbp and goes on with another.
void cut_frames() {
    // What a frame may look like: the caller's rbp, then a return address.
    uint64_t frames[3][2] = {{0, (uint64_t)cut_frames + 4}, {0, (uint64_t)bad_rbps + 4}, {0, 5}};
    asm volatile("" ::"r"(frames) : "memory");
    for (int i = 0; i < 12; i++) {
        uint64_t *frame = frames[i % 3];
        for (auto through : {with_rbp, without_information_with_rbp}) {
            for (uint64_t bad : {8ul, 16ul, 1ul}) {
                Backtrace cut(through(probe, bad));
                EXPECT(cut.flags & TRUNCATED && cut.depth() == 1);
            }
            Backtrace goes_on(through(probe, (uint64_t)frame));
            if (frame[1] == 5)
                EXPECT(goes_on.flags & TRUNCATED);
            else
                EXPECT(goes_on.depth() >= 2 && goes_on.pcs[1] == frame[1]);
        }
        EXPECT(Backtrace(without_information_with_rbp(probe, (uint64_t)frames[2])).depth() == 1);
    }
}
void case_cut_frames() {
    cut_frames();
    on_small_stack(cut_frames);
}

// --- a stack that is not the thread's own may be another one at the next event

uint64_t *beyond;
bool readable_beyond;
void heuristic_beyond() {
    Backtrace trace(without_information_with_rbp(probe, (uint64_t)beyond));
    EXPECT(trace.flags & HEURISTIC);
    // What was cut once may stay so; it is marked.
    EXPECT(trace.flags & TRUNCATED || readable_beyond);
}
void case_passing_stacks() {
    const size_t bytes = 64 << 10;
    char *map = (char *)mmap(nullptr, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    beyond = (uint64_t *)(map + bytes + 512);
    beyond[1] = 0x50000000;
    for (int i = 0; i < 8; i++) {
        readable_beyond = i % 4 < 2;
        mprotect(map + bytes, 4096, readable_beyond ? PROT_READ | PROT_WRITE : PROT_NONE);
        OnStack on{};
        getcontext(&on.own);
        on.own.uc_stack.ss_sp = map;
        on.own.uc_stack.ss_size = bytes;
        on.own.uc_link = &on.back;
        makecontext(&on.own, heuristic_beyond, 0);
        swapcontext(&on.back, &on.own);
    }
}

// --- expressions that lead nowhere

void lying_general() {
    // A place below every frame that looks as if the frame had been called from here again.
    uint64_t below[64];
    asm volatile("" ::"r"(below) : "memory");
    static uint64_t unreadable[] = {0x1000, 0xdead00000008, ~0ull - 7, 7};
    for (int i = 0; i < 3; i++)
        for (Probe how : {probe, probe_nested}) {
            for (uint64_t &cfa : unreadable) {
                Backtrace trace(cfa_behind_rbx(how, &cfa));
                EXPECT(trace.flags & SLOW && trace.flags & (HEURISTIC | TRUNCATED));
                Backtrace nowhere(cfa_behind_rbx(how, (const uint64_t *)cfa));
                EXPECT(nowhere.flags & SLOW && nowhere.flags & (HEURISTIC | TRUNCATED));
            }
            uint64_t self = (uint64_t)__builtin_frame_address(0) - 2048;
            Backtrace inwards(cfa_behind_rbx(how, &self));
            EXPECT(inwards.depth() < 200);
            EXPECT(inwards.flags & SLOW && inwards.flags & (HEURISTIC | TRUNCATED));
            // The same frame again, further in: rbx, the return address, and the CFA behind them.
            static uint64_t again[3], *cell = &again[2];
            uint64_t pc = Backtrace(cfa_behind_rbx(how, &self)).pcs[0];
            again[0] = (uint64_t)&cell, again[1] = pc;
            Backtrace circle(cfa_behind_rbx(how, (const uint64_t *)&cell));
            EXPECT(circle.depth() < 200);
        }
    asm volatile("" ::"r"(below) : "memory");
}
void case_lying_general() {
    lying_general();
    on_small_stack(lying_general);
}

long probes(Walk *) {
    continued = probe();
    return 1;
}
long probes_nested(Walk *) {
    continued = probe_nested();
    return 1;
}
void no_information() {
    for (int i = 0; i < 3; i++)
        for (Continue inner : {probes, probes_nested}) {
            odd_without_information(nullptr, inner);
            Backtrace heuristic(continued);
            EXPECT(heuristic.flags == HEURISTIC);
            EXPECT(heuristic.has((void *)no_information, 4096));
            odd_without_anything(nullptr, inner);
            Backtrace cut(continued);
            EXPECT(cut.flags == (HEURISTIC | TRUNCATED));
            EXPECT(cut.has((void *)odd_without_anything, 64));
        }
}
void case_no_information() {
    no_information();
    on_small_stack(no_information);
}

// The probe below a frame that only the general unwinder understands.
uint64_t probe_slowly() {
    odd_cfa_in_rbx(nullptr, probes);
    return continued;
}

// Without information, code that goes straight to its return tells its frame, whatever is in rbp; unless what it seems
// to return to does not follow a call.
void case_epilogues() {
    struct {
        Probe how;
        int flags;
        size_t more;
    } const ways[] = {{probe, HEURISTIC, 0}, {probe_nested, HEURISTIC, 0}, {probe_slowly, HEURISTIC | SLOW, 3}};
    for (int i = 0; i < 3; i++)
        for (auto way : ways) {
            for (uint64_t rbp : {0ul, 1ul, ~0ul << 3, (uint64_t)__builtin_frame_address(0) - 4096}) {
                Backtrace trace(plain_epilogue(way.how, rbp));
                EXPECT(trace.flags == way.flags);
                EXPECT(trace.depth() == Backtrace(probe()).depth() + 1 + way.more);
            }
            directed_probe = way.how;
            Backtrace inside(call_either((void *)frame_with_room, 96, (void *)plain_inner));
            directed_probe = probe;
            EXPECT(inside.flags == way.flags);
            EXPECT(inside.depth() == Backtrace(call_either((void *)frame_with_room, 96, (void *)inner_saves_rbp)).depth() + way.more);
            uint64_t behind_a_call = Backtrace(probe()).pcs[0];
            for (uint64_t word : {(uint64_t)0x1000, behind_a_call}) {
                Backtrace trace(false_epilogue(way.how, word));
                EXPECT(trace.flags & HEURISTIC);
                // What is refused is followed by its frame pointer.
                if (word == behind_a_call)
                    EXPECT(trace.pcs.at(2 + way.more) == word);
                else
                    EXPECT(trace.flags == way.flags && trace.depth() == Backtrace(probe()).depth() + 2 + way.more);
            }
        }
}

// A frame too large for a rule, and one with its CFA in rbx: exact all the same.
void case_general() {
    for (int i = 0; i < 3; i++)
        for (Continue inner : {probes, probes_nested})
            for (auto odd : {odd_huge_frame, odd_cfa_in_rbx, odd_cfa_by_alignment}) {
                // So that every second frame begins at a multiple of 32.
                void *volatile room = __builtin_alloca(16);
                (void)room;
                odd(nullptr, inner);
                Backtrace trace(continued);
                EXPECT(trace.flags == SLOW);
                EXPECT(trace.depth() == Backtrace(probe()).depth() + 2);
            }
}

} // namespace

const DirectedCases damaged_information_cases = {
    {"lying-frames", case_lying_frames},
    {"bad-rbp", case_bad_rbp},
    {"cut-frames", case_cut_frames},
    {"passing-stacks", case_passing_stacks},
    {"lying-general", case_lying_general},
    {"no-information", case_no_information},
    {"epilogues", case_epilogues},
    {"general", case_general},
};
