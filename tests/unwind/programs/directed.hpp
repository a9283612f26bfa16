// What the files of directed cases share: the functions of directed.S and odd.S, a small stack, many stacks, and the
// lists of cases.
#pragma once
#include "frames.hpp"
#include <sys/mman.h>
#include <ucontext.h>

extern "C" {
typedef uint64_t (*Probe)(void);
extern Probe directed_probe;
extern uint64_t stack_result;
uint64_t call_either(void *target, long room, void *inner);
void fixed_then_room(), frame_with_room(), inner_keeps_rbp(), inner_saves_rbp();
uint64_t call_realigned(void *target, long room, void *inner, long place);
void realigned_with(), fixed_then_realigned(), inner_realigned(), first_of_stack(), other_of_stack();
uint64_t lying_frame(Probe), shrinking_frame(Probe), standing_frame(Probe), lying_save(Probe);
uint64_t with_rbp(Probe, uint64_t rbp), without_information_with_rbp(Probe, uint64_t rbp);
uint64_t plain_epilogue(Probe, uint64_t rbp), false_epilogue(Probe, uint64_t word);
void plain_inner();
uint64_t cfa_behind_rbx(Probe, const uint64_t *rbx);
void trap_with_sp(void *sp), trap_with_sp_alone(void *sp), trap_at(long place);
void trap_here(), fixed_then_trap(), trap_misaligned(), trap_in_epilogue();
void cfa_behind_r10();
typedef long (*Continue)(Walk *);
long odd_huge_frame(Walk *, Continue), odd_without_anything(Walk *, Continue),
    odd_without_information(Walk *, Continue), odd_cfa_in_rbx(Walk *, Continue), odd_cfa_by_alignment(Walk *, Continue);
void restorer_without_information();
void probe_destroy();
void probe_reset();
}

struct DirectedCase {
    const char *name;
    void (*run)();
};
using DirectedCases = std::vector<DirectedCase>;
extern const DirectedCases frame_pointer_cases, damaged_information_cases, signal_cases, memory_cases,
    signature_cases;

// What the last probe of a callback or a signal handler returned.
inline uint64_t continued;

struct OnStack {
    ucontext_t own, back;
};

// Runs `body` at the very end of a mapping, with an unreadable page after it.
inline void on_small_stack(void (*body)(), size_t bytes = 64 << 10) {
    char *map = (char *)mmap(nullptr, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(map + 4096, bytes, PROT_READ | PROT_WRITE);
    OnStack on{};
    getcontext(&on.own);
    on.own.uc_stack.ss_sp = map + 4096;
    on.own.uc_stack.ss_size = bytes;
    on.own.uc_link = &on.back;
    makecontext(&on.own, body, 0);
    swapcontext(&on.back, &on.own);
    munmap(map, bytes + 8192);
}

// One of 4,096 stacks, told apart by return addresses alone, below a frame with `room` bytes.
uint64_t with_room(unsigned path, size_t room, unsigned *at);

// A case below a frame that is larger than the words of a path reach.
template <void (*kCase)()> __attribute__((noinline)) void far_away() {
    volatile char room[600 << 10];
    room[0] = 1;
    kCase();
    asm volatile("" ::"r"(room) : "memory");
}
