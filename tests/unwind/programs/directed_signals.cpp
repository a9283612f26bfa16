// Signals: what they interrupt, on which stack their handlers run, and how those are left.
#include "check.hpp"
#include "directed.hpp"
#include <csetjmp>
#include <csignal>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

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

} // namespace

const DirectedCases signal_cases = {
    {"signal-checks", case_signal_checks},
    {"restorer-without-information", case_restorer_without_information},
    {"jumps-out-of-handlers", case_jumps_out_of_handlers},
    {"small-signal-stack", case_small_signal_stack},
    {"overflowed-stack", case_overflowed_stack},
};
