// Compares the unwinder's list of PCs with an oracle's.
//
// The oracle is libgcc's `_Unwind_Backtrace`: it reads the same unwind information, but shares no code and no cache
// with us, follows dlclose, and knows which frames were interrupted. libunwind, without its caches (with them it is
// stale after dlclose), and framehop are asked now and then as second opinions.
#pragma once
#include "tree.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <ucontext.h>
#include <unwind.h>

struct List {
    static constexpr int kMax = 8192;
    uint64_t pc[kMax];
    int count = 0;
    void add(uint64_t value) {
        if (value != 0 && count < kMax)
            pc[count++] = value;
    }
};

struct Counters {
    std::atomic<long> checks, mismatches, skipped, frames, signal_frames, second_opinions;
    std::atomic<long> truncated, heuristic, slow;
};
inline Counters counters;

// Flags that a scenario may bring; others count as mismatches.
inline std::atomic<int> allowed_flags{0};
// Whether the oracles' list may be the longer or the shorter one, as long as the common part is the same: for frames
// without unwind information, where the oracles give up at once.
inline std::atomic<bool> oracle_may_stop{false};
// Whether our list may end before the oracle's: for the engine that knows frame pointers only, in C libraries without.
inline std::atomic<bool> ours_may_stop{false};
inline std::atomic<bool> ask_libunwind{false}, ask_framehop{false};

struct Libgcc {
    _Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
    uintptr_t (*ip)(struct _Unwind_Context *, int *);
    Libgcc() {
        // By name: libunwind.so exports functions of the same names.
        void *library = dlopen("libgcc_s.so.1", RTLD_NOW);
        *(void **)&backtrace = dlsym(library, "_Unwind_Backtrace");
        *(void **)&ip = dlsym(library, "_Unwind_GetIPInfo");
    }
};
inline Libgcc libgcc;

inline _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *argument) {
    int interrupted = 0;
    uint64_t ip = libgcc.ip(context, &interrupted);
    if (ip != 0)
        ((List *)argument)->add(ip + (interrupted ? 1 : 0));
    counters.signal_frames += interrupted != 0;
    return _URC_NO_REASON;
}

// libunwind, in a scope of its own: linked, it would take the place of libgcc for this program's exceptions, and its
// way of continuing after one is no code that anybody could unwind through.
struct Libunwind {
    struct Cursor {
        uint64_t opaque[127];
    };
    static constexpr int kInstructionPointer = 16, kCacheNone = 0;
    int (*get_context)(ucontext_t *);
    int (*init_local)(Cursor *, ucontext_t *);
    int (*get_register)(Cursor *, int, uint64_t *);
    int (*step)(Cursor *);
    Libunwind() {
        void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return;
        *(void **)&get_context = dlsym(library, "_Ux86_64_getcontext");
        *(void **)&init_local = dlsym(library, "_ULx86_64_init_local");
        *(void **)&get_register = dlsym(library, "_ULx86_64_get_reg");
        *(void **)&step = dlsym(library, "_ULx86_64_step");
        auto set_policy = (int (*)(void *, int))dlsym(library, "_ULx86_64_set_caching_policy");
        set_policy(*(void **)dlsym(library, "_ULx86_64_local_addr_space"), kCacheNone);
    }
};

inline void list_by_libunwind(List &list) {
    static Libunwind libunwind;
    ucontext_t context;
    Libunwind::Cursor cursor;
    libunwind.get_context(&context);
    libunwind.init_local(&cursor, &context);
    do {
        uint64_t ip;
        libunwind.get_register(&cursor, Libunwind::kInstructionPointer, &ip);
        if (ip == 0)
            break;
        list.add(ip);
    } while (libunwind.step(&cursor) > 0);
}

inline void print_frame(uint64_t pc) {
    Dl_info info{};
    if (pc == 0 || !dladdr((void *)(pc - 1), &info))
        fprintf(stderr, " %14lx %-30s", pc, "");
    else
        fprintf(stderr, " %14lx %-30.30s", pc, info.dli_sname ? info.dli_sname : strrchr(info.dli_fname, '/'));
}

inline bool report(const char *oracle, const List &ours, const List &theirs) {
    static std::atomic<int> left{5};
    if (left-- > 0) {
        fprintf(stderr, "mismatch with %s: %d and %d frames\n", oracle, ours.count, theirs.count);
        for (int i = 0; i < std::min(std::max(ours.count, theirs.count), 60); i++) {
            fprintf(stderr, "%4d", i);
            print_frame(i < ours.count ? ours.pc[i] : 0);
            print_frame(i < theirs.count ? theirs.pc[i] : 0);
            fputc('\n', stderr);
        }
    }
    return false;
}

// The lists begin in different instructions of the function that asked, and theirs perhaps in a helper of it.
// `exact`: interrupted addresses are stored plus one in both; libunwind's versions do not agree on which those are.
inline bool same(const char *oracle, const List &ours, const List &theirs, bool exact = true) {
    auto equal = [exact](uint64_t a, uint64_t b) { return a == b || (!exact && a == b + 1); };
    int skip = 0;
    while (skip < 4 && skip < theirs.count && ours.count > 1 && theirs.pc[skip] != ours.pc[1])
        skip++;
    int theirs_left = theirs.count - skip, ours_left = ours.count - 1;
    int common = std::min(theirs_left, ours_left);
    if (common <= 0 || !std::equal(ours.pc + 1, ours.pc + 1 + common, theirs.pc + skip, equal))
        return report(oracle, ours, theirs);
    bool stopped = (oracle_may_stop && theirs_left < ours_left) || (ours_may_stop && ours_left < theirs_left);
    if (theirs_left != ours_left && !stopped)
        return report(oracle, ours, theirs);
    return true;
}

inline void take_flags(int flags, bool &ok) {
    counters.truncated += (flags & TRUNCATED) != 0;
    counters.heuristic += (flags & HEURISTIC) != 0;
    counters.slow += (flags & SLOW) != 0;
    if (flags & ~allowed_flags) {
        static std::atomic<int> left{5};
        if (left-- > 0)
            fprintf(stderr, "unexpected flags %d\n", flags);
        ok = false;
    }
}

extern "C" __attribute__((noinline, noclone)) void check(Walk *) {
    // A signal handler may come here in the middle: it must not touch the lists.
    static __thread int busy;
    static __thread List *ours, *theirs;
    static __thread unsigned number;
    if (busy) {
        counters.skipped++;
        return;
    }
    busy = 1;
    asm volatile("" ::: "memory");
    if (!ours)
        ours = (List *)calloc(1, sizeof(List)), theirs = (List *)calloc(1, sizeof(List));
    uint64_t captured = probe();
    ours->count = (int)probe_pcs((uint32_t)captured, ours->pc, List::kMax);
    bool ok = true;
    take_flags((int)(captured >> 32), ok);
    theirs->count = 0;
    libgcc.backtrace(add_frame, theirs);
    ok &= same("libgcc", *ours, *theirs);
    if (ask_libunwind && number % 64 == 0) {
        theirs->count = 0;
        list_by_libunwind(*theirs);
        ok &= same("libunwind", *ours, *theirs, false);
        counters.second_opinions++;
    }
    if (ask_framehop && number % 16 == 0) {
        theirs->count = (int)probe_framehop(theirs->pc, List::kMax);
        ok &= same("framehop", *ours, *theirs);
        counters.second_opinions++;
    }
    number++;
    counters.checks++;
    counters.frames += ours->count;
    counters.mismatches += !ok;
    asm volatile("" ::: "memory");
    busy = 0;
}
