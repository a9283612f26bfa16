// differential SCENARIO [SCALE [ALARM]]: walks at random through functions of every shape and compares backtraces on the way.
// Prints one line: scenario, checks, mismatches, and what else was counted.
#include "bushes.hpp"
#include "check.hpp"
#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

namespace {

Function functions[4096];
int function_count, plain_count;
long scale = 1;
// Microseconds between alarms. Where a walk takes longer than that, as under an emulator, it never ends.
long alarm_us = 2000;

void add(std::initializer_list<Function> more, int times) {
    for (int i = 0; i < times; i++)
        for (Function function : more)
            add_function(function);
}

Walk walk_from(uint64_t seed) {
    Walk walk{};
    walk.random = seed * 0x9e3779b97f4a7c15ull + 1;
    return walk;
}

thread_local jmp_buf *targets[64];
thread_local int target_count;
std::atomic<bool> may_jump{false};

void run(Walk *walk, int depth, long budget) {
    walk->budget = budget;
    while (walk->budget > 0) {
        long before = walk->budget;
        try {
            go(walk, depth);
        } catch (...) {
            check(walk);
        }
        target_count = 0;
        if (walk->budget == before)
            walk->budget--;
    }
}

// --- exceptions, setjmp, callbacks from libraries

struct ChecksAtEnd {
    Walk *walk;
    ~ChecksAtEnd() { check(walk); }
};

long throws(Walk *w, int d) {
    ChecksAtEnd guard{w};
    if (next_random(w) % 3 == 0)
        throw std::runtime_error("thrown by the test");
    long r = go(w, d - 1);
    if (next_random(w) % 4 == 0)
        throw 42;
    return r + 1;
}

long catches(Walk *w, int d) {
    long r = 0;
    try {
        ChecksAtEnd guard{w};
        r = go(w, d - 1) + throws(w, d - 1);
    } catch (std::exception &) {
        check(w);
        r = go(w, d - 2);
    } catch (int) {
        check(w);
        try {
            throw;
        } catch (...) {
            check(w);
        }
    }
    return r;
}

long passes_exceptions(Walk *w, int d) {
    std::string text(next_random(w) % 100, 'x');
    std::vector<long> numbers(next_random(w) % 50);
    try {
        return go(w, d - 1) + (long)(text.size() + numbers.size());
    } catch (...) {
        check(w);
        throw;
    }
}

long sets_jump(Walk *w, int d) {
    if (target_count >= 64)
        return 0;
    jmp_buf buffer;
    volatile int mine = target_count;
    targets[target_count++] = &buffer;
    volatile long r = 0;
    if (setjmp(buffer) == 0) {
        try {
            r = go(w, d - 1);
        } catch (...) {
            target_count = mine;
            check(w);
            throw;
        }
    } else {
        check(w);
        r = go(w, d - 2);
    }
    target_count = mine;
    check(w);
    return r;
}

long jumps(Walk *w, int d) {
    check(w);
    if (target_count > 0 && may_jump && next_random(w) % 4 == 0)
        longjmp(*targets[target_count - 1], 1);
    return go(w, d - 1);
}

thread_local Walk *comparing;
int compare(const void *a, const void *b) {
    if (next_random(comparing) % 16 == 0)
        check(comparing);
    return *(const int *)a - *(const int *)b;
}

long sorts(Walk *w, int d) {
    int values[40];
    for (int &value : values)
        value = (int)(next_random(w) % 100);
    comparing = w;
    qsort(values, 40, sizeof(int), compare);
    return go(w, d - 1);
}

// --- coroutines, on stacks that are unmapped and come again

struct Coroutine {
    ucontext_t own, back;
    char *stack;
    size_t size;
    Walk walk;
    bool done;
};

void begin_coroutine(unsigned low, unsigned high) {
    auto *coroutine = (Coroutine *)((uint64_t)high << 32 | low);
    coroutine->walk.coroutine = coroutine;
    run(&coroutine->walk, 12, 200);
    coroutine->done = true;
    swapcontext(&coroutine->own, &coroutine->back);
}

Coroutine *make_coroutine(uint64_t seed) {
    auto *c = new Coroutine();
    c->size = (16 + seed % 7 * 4) << 12;
    c->stack = (char *)mmap(nullptr, c->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&c->own);
    c->own.uc_stack.ss_sp = c->stack;
    c->own.uc_stack.ss_size = c->size;
    c->own.uc_link = &c->back;
    c->walk = walk_from(seed);
    makecontext(&c->own, (void (*)())begin_coroutine, 2, (unsigned)(uint64_t)c, (unsigned)((uint64_t)c >> 32));
    return c;
}

void drop_coroutine(Coroutine *c) {
    munmap(c->stack, c->size);
    delete c;
}

long yields(Walk *w, int d) {
    if (w->coroutine && next_random(w) % 2) {
        auto *c = (Coroutine *)w->coroutine;
        swapcontext(&c->own, &c->back);
        target_count = 0;
    }
    check(w);
    return go(w, d - 1);
}

void run_coroutines(uint64_t seed, long rounds) {
    Walk walk = walk_from(seed * 77 + 5);
    std::vector<Coroutine *> all;
    for (int i = 0; i < 6; i++)
        all.push_back(make_coroutine(seed + i));
    for (long round = 0; round < rounds; round++) {
        size_t i = next_random(&walk) % all.size();
        swapcontext(&all[i]->back, &all[i]->own);
        check(&walk);
        if (all[i]->done) {
            drop_coroutine(all[i]);
            all[i] = make_coroutine(seed + 1000 + round);
        }
        if (next_random(&walk) % 8 == 0)
            run(&walk, 6, 20);
    }
    for (Coroutine *c : all)
        drop_coroutine(c);
}

// --- signals

thread_local bool in_handler;

// While swapcontext exchanges the stack pointer, its unwind information is wrong, and the oracle crashes. On aarch64 the
// second half of it is setcontext.
const uint64_t swapping = (uint64_t)dlsym(RTLD_DEFAULT, "swapcontext");
const uint64_t setting = (uint64_t)dlsym(RTLD_DEFAULT, "setcontext");
bool in_swapcontext(const void *context) {
#ifdef __aarch64__
    uint64_t interrupted = ((const ucontext_t *)context)->uc_mcontext.pc;
#else
    uint64_t interrupted = (uint64_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#endif
    return interrupted - swapping < 512 || interrupted - setting < 512;
}

void on_signal(int, siginfo_t *, void *context) {
    int saved_errno = errno;
    if (!in_handler && !in_swapcontext(context)) {
        in_handler = true;
        Walk walk = walk_from((uint64_t)&saved_errno + (uint64_t)time(nullptr));
        walk.only_plain = 1;
        for (int i = 0; i < 6; i++) {
            check(&walk);
            walk.budget = 3;
            go(&walk, 3);
        }
        in_handler = false;
    }
    errno = saved_errno;
}

void handle(int signal, int flags) {
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART | flags;
    sigaction(signal, &action, nullptr);
}

void alternate_stack() {
    stack_t stack{};
    stack.ss_size = 1 << 17;
    stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, nullptr);
}

void timer(long microseconds) {
    struct itimerval interval {};
    interval.it_interval.tv_usec = interval.it_value.tv_usec = microseconds;
    setitimer(ITIMER_REAL, &interval, nullptr);
}

long raises(Walk *w, int d) {
    raise(next_random(w) & 1 ? SIGUSR1 : SIGUSR2);
    return go(w, d - 1);
}

// --- unwind information that compilers do not write

extern "C" {
typedef long (*Continue)(Walk *);
long odd_cfa_in_rbx(Walk *, Continue), odd_cfa_in_r12(Walk *, Continue), odd_cfa_in_memory(Walk *, Continue),
    odd_rbp_in_r13(Walk *, Continue), odd_rbp_by_expression(Walk *, Continue),
    odd_return_address_moved(Walk *, Continue), odd_remembered_states(Walk *, Continue),
    odd_plt_like(Walk *, Continue), odd_without_information(Walk *, Continue);
}

thread_local int odd_depth;

long continue_odd(Walk *w) {
    check(w);
    long r = go(w, odd_depth - 2);
    check(w);
    return r + 1;
}

template <long (*function)(Walk *, Continue)> long odd(Walk *w, int d) {
    odd_depth = d;
    return function(w, continue_odd) + 1;
}

// --- scenarios

void scenario_trees() {
    Walk walk = walk_from(1);
    run(&walk, 20, 20000 * scale);
    run(&walk, 100, 20000 * scale);
}

__attribute__((noinline)) void run_with_room(Walk *walk, int bytes) {
    volatile char room[bytes];
    room[0] = 1;
    run(walk, 7, 60);
    (void)room[0];
}

long bush(Walk *w, int) {
    walk_bushes(w, 1);
    return 1;
}

// Few functions and little depth: the same states come again and again, with other callers outside of them.
void scenario_repeating() {
    Walk walk = walk_from(11);
    std::vector<Function> all(functions, functions + function_count);
    for (long round = 0; round < 10 * scale; round++) {
        function_count = plain_count = 10;
        for (int i = 0; i < function_count; i++)
            functions[i] = all[next_random(&walk) % all.size()];
        for (int seed = 0; seed < 6; seed++)
            for (int again = 0; again < 15; again++) {
                // The same walk again, from this frame and from two deeper ones.
                Walk same = walk_from(1 + seed);
                if (again % 3 == 0)
                    run(&same, 7, 60);
                else
                    run_with_room(&same, 64 * (again % 3));
            }
    }
}

void *bushes_of_a_thread(void *) {
    Walk walk = walk_from(13);
    walk_bushes(&walk, 10000 * scale);
    return nullptr;
}

// Where stacks have many siblings; on stacks that are nobody's own, too.
void scenario_bushes() {
    Walk walk = walk_from(12);
    walk_bushes(&walk, 40000 * scale);
    pthread_t thread;
    pthread_create(&thread, nullptr, bushes_of_a_thread, nullptr);
    pthread_join(thread, nullptr);
    add({yields, bush}, 8);
    run_coroutines(12, 300 * scale);
}

void add_library_calls() {
    add({catches, passes_exceptions, sets_jump, yields, sorts}, 8);
}

void scenario_exceptions() {
    add_library_calls();
    Walk walk = walk_from(2);
    run(&walk, 25, 20000 * scale);
}

void scenario_longjmp() {
    add_library_calls();
    add({jumps}, 8);
    may_jump = true;
    Walk walk = walk_from(3);
    run(&walk, 25, 20000 * scale);
}

void scenario_coroutines() {
    add_library_calls();
    run_coroutines(4, 1500 * scale);
}

void scenario_signals() {
    add_library_calls();
    alternate_stack();
    handle(SIGUSR1, 0);
    handle(SIGUSR2, SA_ONSTACK);
    add({raises}, 4);
    Walk walk = walk_from(5);
    run(&walk, 25, 10000 * scale);
}

// Without exceptions: where libgcc has moved the stack pointer to continue after one, its unwind information is wrong
// for some instructions, and its own `_Unwind_Backtrace` crashes there.
void interrupted(int flags) {
    allowed_flags = SLOW; // a signal may find the loader in the middle of binding a symbol
#ifdef __aarch64__
    // A procedure linkage table has no unwind information there: the oracle gives up.
    allowed_flags = SLOW | HEURISTIC;
    oracle_may_stop = true;
#endif
    add({sets_jump, yields, sorts}, 8);
    alternate_stack();
    handle(SIGALRM, flags);
    timer(alarm_us);
    Walk walk = walk_from(6);
    run(&walk, 25, 100000 * scale * 2000 / alarm_us); // long enough for a hundred alarms on a quick machine
    run_coroutines(7, 300 * scale);
    timer(0);
}

void scenario_interrupts() { interrupted(0); }
void scenario_interrupts_alternate() { interrupted(SA_ONSTACK); }

void *thread_main(void *seed) {
    alternate_stack();
    Walk walk = walk_from((uint64_t)seed + 100);
    run(&walk, 30, 3000);
    run_coroutines((uint64_t)seed, 300);
    return nullptr;
}

void scenario_threads() {
    add_library_calls();
    handle(SIGUSR1, 0);
    handle(SIGUSR2, SA_ONSTACK);
    add({raises}, 1);
    for (long round = 0; round < scale; round++) {
        pthread_t threads[8];
        for (long i = 0; i < 8; i++)
            pthread_create(&threads[i], nullptr, thread_main, (void *)(round * 8 + i + 1));
        for (pthread_t thread : threads)
            pthread_join(thread, nullptr);
    }
}

void scenario_odd() {
    allowed_flags = SLOW;
    add_library_calls();
    add({odd<odd_cfa_in_rbx>, odd<odd_cfa_in_r12>, odd<odd_cfa_in_memory>, odd<odd_rbp_in_r13>,
         odd<odd_rbp_by_expression>, odd<odd_return_address_moved>}, 1);
    Walk walk = walk_from(8);
    run(&walk, 25, 6000 * scale);
    run_coroutines(8, 100 * scale);
}

// What looks odd but fits the rules.
void scenario_odd_fast() {
    add({odd<odd_remembered_states>, odd<odd_plt_like>}, 8);
    Walk walk = walk_from(9);
    run(&walk, 25, 10000 * scale);
}

void scenario_without_information() {
    allowed_flags = HEURISTIC;
    oracle_may_stop = true;
    ask_libunwind = ask_framehop = false;
    add({odd<odd_without_information>}, 16);
    Walk walk = walk_from(10);
    run(&walk, 25, 10000 * scale);
    run_coroutines(10, 200 * scale);
}

struct Scenario {
    const char *name;
    void (*run)();
} const scenarios[] = {
    {"trees", scenario_trees},
    {"repeating", scenario_repeating},
    {"bushes", scenario_bushes},
    {"exceptions", scenario_exceptions},
    {"longjmp", scenario_longjmp},
    {"coroutines", scenario_coroutines},
    {"signals", scenario_signals},
    {"interrupts", scenario_interrupts},
    {"interrupts-alternate", scenario_interrupts_alternate},
    {"threads", scenario_threads},
    {"odd", scenario_odd},
    {"odd-fast", scenario_odd_fast},
    {"without-information", scenario_without_information},
};

} // namespace

extern "C" void add_function(Function function) {
    functions[function_count++] = function;
}

extern "C" long go(Walk *w, int d) {
    if (d <= 0 || w->budget <= 0) {
        check(w);
        return 0;
    }
    w->budget--;
    return functions[next_random(w) % (w->only_plain ? plain_count : function_count)](w, d);
}

extern "C" long go_with_stack_arguments(Walk *w, int d, long a, long b, long c, long e, long f, long g, long h,
                                        long i) {
    check(w);
    return go(w, d) + a + b + c + e + f + g + h + i;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    plain_count = function_count;
    scale = argc > 2 ? atol(argv[2]) : 1;
    alarm_us = argc > 3 ? atol(argv[3]) : alarm_us;
    ask_libunwind = getenv("ASK_LIBUNWIND") != nullptr;
    ask_framehop = getenv("ASK_FRAMEHOP") != nullptr;
    if (getenv("OURS_MAY_STOP")) {
        ours_may_stop = true;
        allowed_flags = TRUNCATED;
    }
    for (const Scenario &scenario : scenarios) {
        if (strcmp(argv[1], scenario.name) != 0)
            continue;
        scenario.run();
        printf("%s checks %ld mismatches %ld frames %ld skipped %ld signal_frames %ld second_opinions %ld "
               "truncated %ld heuristic %ld slow %ld learned %lu signatures %lu functions %d\n",
               scenario.name, counters.checks.load(), counters.mismatches.load(), counters.frames.load(),
               counters.skipped.load(), counters.signal_frames.load(), counters.second_opinions.load(),
               counters.truncated.load(), counters.heuristic.load(), counters.slow.load(), probe_stat(STAT_LEARNED),
               probe_stat(STAT_SIGNATURES), plain_count);
        return 0;
    }
    fprintf(stderr, "no scenario %s\n", argv[1]);
    return 2;
}
