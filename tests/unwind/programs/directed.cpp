// directed CASE: one constructed case; exits 1 and says what failed if it does.
#include "check.hpp"
#include "frames.hpp"
#include <csetjmp>
#include <csignal>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

extern "C" {
typedef uint64_t (*Probe)(void);
Probe directed_probe = probe;
uint64_t call_either(void *target, long room, void *inner);
void fixed_then_room(), frame_with_room(), inner_keeps_rbp(), inner_saves_rbp();
uint64_t call_realigned(void *target, long room, void *inner, long place);
void realigned_with(), fixed_then_realigned(), inner_realigned(), first_of_stack(), other_of_stack();
uint64_t stack_result;
uint64_t lying_frame(Probe), shrinking_frame(Probe), standing_frame(Probe), lying_save(Probe);
uint64_t with_rbp(Probe, uint64_t rbp), without_information_with_rbp(Probe, uint64_t rbp);
uint64_t plain_epilogue(Probe, uint64_t rbp), false_epilogue(Probe, uint64_t word);
void plain_inner();
uint64_t cfa_behind_rbx(Probe, const uint64_t *rbx);
void trap_with_sp(void *sp), trap_with_sp_alone(void *sp), trap_at(long place), trap_here(), fixed_then_trap(), trap_misaligned(), trap_in_epilogue();
void cfa_behind_r10();
typedef long (*Continue)(Walk *);
long odd_huge_frame(Walk *, Continue), odd_without_anything(Walk *, Continue),
    odd_without_information(Walk *, Continue), odd_cfa_in_rbx(Walk *, Continue), odd_cfa_by_alignment(Walk *, Continue);
void restorer_without_information();
void add_function(Function) {}
long go(Walk *, int) { return 0; }
long go_with_stack_arguments(Walk *, int, long, long, long, long, long, long, long, long) { return 0; }
void probe_destroy();
void probe_reset();
}

namespace {

// --- rbp is part of the state

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

// --- information that lies: cut, marked, and no load that faults

struct OnStack {
    ucontext_t own, back;
    void (*body)();
};
OnStack *running;

// Runs `body` at the very end of a mapping, with an unreadable page after it.
void on_small_stack(void (*body)(), size_t bytes = 64 << 10) {
    char *map = (char *)mmap(nullptr, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(map + 4096, bytes, PROT_READ | PROT_WRITE);
    OnStack on{};
    on.body = body;
    running = &on;
    getcontext(&on.own);
    on.own.uc_stack.ss_sp = map + 4096;
    on.own.uc_stack.ss_size = bytes;
    on.own.uc_link = &on.back;
    makecontext(&on.own, body, 0);
    swapcontext(&on.back, &on.own);
    munmap(map, bytes + 8192);
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

uint64_t continued;
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

// --- a signal handler that returns through code without unwind information

void on_signal_probe(int) { continued = probe(); }

void case_restorer_without_information() {
    const unsigned long restorer_flag = 0x04000000;
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)();
        uint64_t mask;
    } action = {on_signal_probe, restorer_flag, restorer_without_information, 0};
    EXPECT(syscall(SYS_rt_sigaction, SIGUSR1, &action, nullptr, 8) == 0);
    for (int i = 0; i < 3; i++) {
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
        Backtrace trace(continued);
        EXPECT(trace.flags == 0);
        EXPECT(trace.has((void *)case_restorer_without_information, 4096));
    }
}

// --- what a signal interrupted is part of the state

void on_trap(int) { continued = probe(); }

void case_signal_checks() {
    stack_t stack{};
    stack.ss_size = 1 << 17;
    stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_handler = on_trap;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGTRAP, &action, nullptr);
    // The same sp, two PCs.
    uint64_t pcs[2];
    for (volatile int i = 0; i < 6; i++) {
        trap_at(i % 2);
        Backtrace trace(continued);
        EXPECT(trace.flags == 0);
        uint64_t pc = 0;
        for (uint64_t one : trace.pcs)
            if (one - (uint64_t)trap_at < 16)
                pc = one;
        EXPECT(pc != 0 && (i < 2 || pc == pcs[i % 2]));
        pcs[i % 2] = pc;
    }
    EXPECT(pcs[0] != pcs[1]);
    // The same PC, two sps: a frame more or less.
    size_t depth[6];
    void *target[2] = {(void *)trap_here, (void *)fixed_then_trap};
    for (volatile int i = 0; i < 6; i++) {
        call_either(target[i % 2], 0, nullptr);
        depth[i] = Backtrace(continued).depth();
    }
    for (int i = 0; i < 6; i += 2)
        EXPECT(depth[i] + 1 == depth[i + 1] && depth[i] == depth[0]);
    // The same PC and sp, two rbps.
    void *with_frame[2] = {(void *)frame_with_room, (void *)fixed_then_room};
    long room[2] = {96, 64};
    for (volatile int i = 0; i < 6; i++) {
        call_either(with_frame[i % 2], room[i % 2], (void *)trap_here);
        depth[i] = Backtrace(continued).depth();
    }
    for (int i = 0; i < 6; i += 2)
        EXPECT(depth[i] + 1 == depth[i + 1] && depth[i] == depth[0]);
    // Words that were popped already.
    for (volatile int i = 0; i < 6; i++) {
        call_either(with_frame[i % 2], room[i % 2], (void *)trap_in_epilogue);
        EXPECT(Backtrace(continued).flags == 0 && Backtrace(continued).depth() == depth[i]);
    }
    // A CFA in a register that the interrupted function did not have to keep: nobody knows it.
    for (int i = 0; i < 3; i++) {
        cfa_behind_r10();
        Backtrace trace(continued);
        EXPECT(trace.flags & SLOW && trace.flags & (HEURISTIC | TRUNCATED));
    }
    // A stack pointer that is no multiple of eight.
    for (int i = 0; i < 3; i++) {
        trap_misaligned();
        Backtrace trace(continued);
        EXPECT(trace.flags == SLOW && trace.has((void *)case_signal_checks, 8192));
    }
}

// --- depth and memory

__attribute__((noinline)) uint64_t recurse(int depth, Probe how) {
    if (depth == 0)
        return how();
    uint64_t result = recurse(depth - 1, how);
    asm volatile("" : "+r"(result));
    return result;
}

void case_deep() {
    size_t shallow = Backtrace(recurse(0, probe)).depth();
    for (int depth : {1000, 30000, 100000, 30000, 7})
        for (int i = 0; i < 3; i++) {
            Backtrace trace(recurse(depth, probe));
            EXPECT(trace.flags == 0);
            EXPECT(trace.depth() == shallow + (size_t)depth);
        }
    for (int depth : {63, 64, 65, 200, 10000}) {
        std::vector<uint64_t> pcs[2];
        for (volatile int nested = 0; nested < 2; nested++) {
            Backtrace trace(recurse(depth, nested ? probe_nested : probe));
            EXPECT(trace.flags == 0);
            EXPECT(trace.depth() == shallow + (size_t)depth);
            pcs[nested] = trace.pcs;
        }
        EXPECT(pcs[0] == pcs[1]);
    }
}

void *deep_thread(void *) {
    // Deeper than the records that all forests may have together.
    size_t shallow = Backtrace(recurse(0, probe)).depth();
    for (int i = 0; i < 3; i++) {
        Backtrace trace(recurse(700000, probe));
        EXPECT(trace.flags == 0);
        EXPECT(trace.depth() == shallow + 700000);
    }
    return nullptr;
}
void case_deeper_than_memory() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128ul << 20);
    pthread_t thread;
    pthread_create(&thread, &attributes, deep_thread, nullptr);
    pthread_join(thread, nullptr);
}

// More stacks than records: they are forgotten and found again, with the same nodes, in bounded memory.
__attribute__((noinline)) uint64_t branch(unsigned path, int left, unsigned *at) {
    if (left == 0) {
        *at = path;
        return probe();
    }
    uint64_t result;
    if (path >> (left - 1) & 1) {
        result = branch(path, left - 1, at);
        asm volatile("# one" : "+r"(result));
    } else {
        result = branch(path, left - 1, at);
        asm volatile("# zero" : "+r"(result));
    }
    return result;
}
__attribute__((noinline)) uint64_t with_room(unsigned path, size_t room, unsigned *at) {
    volatile char bytes[room];
    bytes[0] = 1;
    return branch(path, 12, at) + (uint64_t)bytes[0] - 1;
}
void case_forgetting() {
    std::vector<uint32_t> nodes(1 << 12);
    unsigned at = 0;
    uint64_t most = 0;
    for (int round = 0; round < 40; round++)
        for (unsigned path = 0; path < nodes.size(); path++) {
            Backtrace trace(with_room(path, 16 + 16 * (size_t)(round % 20), &at));
            EXPECT(trace.flags == 0 && at == path);
            if (round == 0)
                nodes[path] = trace.node;
            EXPECT(trace.node == nodes[path]);
            most = std::max(most, probe_stat(STAT_BYTES));
        }
    EXPECT(probe_stat(STAT_FORGOTTEN) > 0);
    EXPECT(most < (20u << 20));
    printf("forgotten %lu times, at most %lu bytes\n", probe_stat(STAT_FORGOTTEN), most);
}

long mappings() {
    FILE *maps = fopen("/proc/self/maps", "r");
    long lines = 0;
    for (int c; (c = fgetc(maps)) != EOF;)
        lines += c == '\n';
    fclose(maps);
    return lines;
}
void *short_life(void *) {
    probe();
    probe_destroy();
    return nullptr;
}
void case_destroy_gives_everything_back() {
    long before = 0;
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, short_life, nullptr);
        pthread_join(thread, nullptr);
        if (i == 20)
            before = mappings();
    }
    EXPECT(mappings() <= before + 2);
}

// --- signals at any instruction, handlers that jump

sigjmp_buf target;
volatile sig_atomic_t may_leave;
void on_alarm_jump(int) {
    probe();
    if (may_leave)
        siglongjmp(target, 1);
}
void case_jumps_out_of_handlers() {
    struct sigaction action {};
    action.sa_handler = on_alarm_jump;
    sigaction(SIGALRM, &action, nullptr);
    struct itimerval interval {};
    interval.it_interval.tv_usec = interval.it_value.tv_usec = 200;
    setitimer(ITIMER_REAL, &interval, nullptr);
    static volatile int left;
    for (volatile int i = 0; i < 100000 && left < 300; i++) {
        if (sigsetjmp(target, 1) != 0) {
            may_leave = 0;
            left = left + 1;
            probe_reset();
        }
        may_leave = 1;
        // New stacks all the time: most signals arrive while something is being learned.
        for (volatile int k = 0; k < 40; k++) {
            unsigned at;
            with_room((unsigned)(i * 40 + k) & 4095, 16 + 16 * (size_t)(k % 32), &at);
        }
        may_leave = 0;
        check(nullptr);
    }
    interval = {};
    setitimer(ITIMER_REAL, &interval, nullptr);
    EXPECT(counters.mismatches == 0);
    EXPECT(left >= 300);
    printf("left %d captures\n", left);
}

// On an alternate stack of the size that programs use, with nothing below it.
void on_signal_check(int) {
    check(nullptr);
    continued = probe_nested();
}
void case_small_signal_stack() {
    check(nullptr);
    size_t bytes = (getauxval(AT_MINSIGSTKSZ) + 4095 + 8192) & ~4095ul;
    // Nothing above it either, as far as a word of a path can reach.
    char *map = (char *)mmap(nullptr, bytes + (1 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(map + 4096, bytes, PROT_READ | PROT_WRITE);
    stack_t stack{};
    stack.ss_sp = map + 4096;
    stack.ss_size = bytes;
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_handler = on_signal_check;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    for (int i = 0; i < 3; i++) {
        raise(SIGUSR1);
        EXPECT(Backtrace(continued).flags == 0);
        EXPECT(Backtrace(continued).has((void *)case_small_signal_stack, 4096));
    }
    EXPECT(counters.mismatches == 0);
}

// A stack overflows, by small frames and by large ones: the handler sees all of it, though the interrupted stack pointer
// lies where nothing is mapped.
sigjmp_buf before_overflow;
bool oracle_survives = true;
void on_overflow(int) {
    if (oracle_survives)
        check(nullptr);
    continued = probe();
    siglongjmp(before_overflow, 1);
}
template <size_t kRoom> __attribute__((noinline)) int overflow(int depth) {
    volatile char room[kRoom];
    room[0] = (char)depth;
    int below = depth < 0 ? 0 : overflow<kRoom>(depth + 1);
    asm volatile("" ::"r"(room) : "memory");
    return below + room[0];
}
template <size_t kRoom> __attribute__((noinline)) void overflows() {
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(before_overflow, 1) == 0)
            overflow<kRoom>(0);
        EXPECT(Backtrace(continued).flags == 0);
        EXPECT(Backtrace(continued).has((void *)overflows<kRoom>, 4096));
        EXPECT(Backtrace(continued).depth() > 8);
    }
}
// An overflow just where the return address can be read and the saved rbp cannot; then, where neither can.
char *edge;
void saved_rbp_in_the_hole() {
    oracle_survives = false;
    for (long below : {40, 72})
        for (volatile int i = 0; i < 3; i++) {
            if (sigsetjmp(before_overflow, 1) == 0)
                trap_with_sp(edge - below);
            EXPECT(Backtrace(continued).flags & TRUNCATED);
            if (sigsetjmp(before_overflow, 1) == 0)
                trap_with_sp_alone(edge - below);
            EXPECT(below == 40 || Backtrace(continued).flags & TRUNCATED);
        }
}
void *overflowing_thread(void *) {
    stack_t stack{};
    stack.ss_size = 512 << 10;
    stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, nullptr);
    overflows<64>();
    overflows<3000>();
    overflows<40000>();
    EXPECT(counters.mismatches == 0);
    saved_rbp_in_the_hole();
    return nullptr;
}
void case_overflowed_stack() {
    struct sigaction action {};
    action.sa_handler = on_overflow;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    const size_t bytes = 1 << 20, guard = 256 << 10;
    char *map = (char *)mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    edge = map + guard;
    mprotect(edge, bytes - guard, PROT_READ | PROT_WRITE);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, edge, bytes - guard);
    pthread_t thread;
    pthread_create(&thread, &attributes, overflowing_thread, nullptr);
    pthread_join(thread, nullptr);
}

// The same with a frame in between that is larger than the words of a path reach.
template <void (*kCase)()> __attribute__((noinline)) void far_away() {
    volatile char room[600 << 10];
    room[0] = 1;
    kCase();
    asm volatile("" ::"r"(room) : "memory");
}
void far_and_forgotten() {
    void *place[2] = {(void *)frame_with_room, (void *)fixed_then_room};
    long room[2] = {96, 64};
    size_t depth[2] = {};
    for (volatile int i = 0; i < 60; i++) {
        size_t now = Backtrace(call_either(place[i % 2], room[i % 2], (void *)inner_keeps_rbp)).depth();
        EXPECT(i < 2 || depth[i % 2] == now);
        depth[i % 2] = now;
        unsigned at;
        for (unsigned path = 0; path < 4096; path++)
            with_room(path, 16 + 16 * (size_t)i, &at);
    }
    EXPECT(depth[0] + 1 == depth[1]);
    EXPECT(probe_stat(STAT_FORGOTTEN) > 0);
}

struct Case {
    const char *name;
    void (*run)();
} const cases[] = {
    {"rbp-at-the-top", case_rbp_at_the_top},
    {"rbp-at-the-top-far", far_away<case_rbp_at_the_top>},
    {"rbp-without-join-far", far_away<case_rbp_without_join>},
    {"many-callers-far", far_away<case_many_callers>},
    {"forgotten-far", far_away<far_and_forgotten>},
    {"rbp-kept-inside", case_rbp_kept_inside},
    {"rbp-saved-inside", case_rbp_saved_inside},
    {"rooms-a-mebibyte-apart", case_rooms_a_mebibyte_apart},
    {"rbp-without-join", case_rbp_without_join},
    {"rbp-through-a-realigned-frame", case_rbp_through_a_realigned_frame},
    {"realigned-rbp", case_realigned_rbp},
    {"many-callers", case_many_callers},
    {"outermost-frames", case_outermost_frames},
    {"lying-frames", case_lying_frames},
    {"bad-rbp", case_bad_rbp},
    {"cut-frames", case_cut_frames},
    {"passing-stacks", case_passing_stacks},
    {"lying-general", case_lying_general},
    {"signal-checks", case_signal_checks},
    {"no-information", case_no_information},
    {"epilogues", case_epilogues},
    {"general", case_general},
    {"restorer-without-information", case_restorer_without_information},
    {"deep", case_deep},
    {"deeper-than-memory", case_deeper_than_memory},
    {"forgetting", case_forgetting},
    {"destroy-gives-everything-back", case_destroy_gives_everything_back},
    {"jumps-out-of-handlers", case_jumps_out_of_handlers},
    {"small-signal-stack", case_small_signal_stack},
    {"overflowed-stack", case_overflowed_stack},
};

} // namespace

int main(int argc, char **argv) {
    for (const Case &one : cases)
        if (argc > 1 && strcmp(argv[1], one.name) == 0) {
            one.run();
            return failures ? 1 : 0;
        }
    fprintf(stderr, "no case %s\n", argc > 1 ? argv[1] : "");
    return 2;
}
