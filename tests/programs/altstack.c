// A handler on an alternate stack allocates; its stack goes on through the signal frame into what was interrupted.
// With an argument: the first stack overflows, three times, and the handler jumps out of it. How deep it was, standard
// error says: that differs from run to run.
#include "truth.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>

static sigjmp_buf rescue;
static unsigned long handled;
static volatile int deepest;
static char alternate[256 << 10] __attribute__((aligned(64)));

NOINLINE void *on_alternate(size_t size) { return NEW(size); }
NOINLINE void *after_rescue(size_t size) { return NEW(size); }

static void handler(int number) {
    (void)number;
    void *block = on_alternate(810);
    FREE(block, 810);
    handled++;
}

static void overflow_handler(int number) {
    (void)number;
    void *block = on_alternate(811);
    FREE(block, 811);
    siglongjmp(rescue, 1);
}

// In code with unwind information: musl's `raise` has none.
static inline void send(int number) {
#if defined(__x86_64__) && !defined(__GLIBC__)
    long result = 62; // SYS_kill
    __asm__ volatile("syscall" : "+a"(result) : "D"((long)getpid()), "S"((long)number) : "rcx", "r11", "memory");
    MUST(result == 0);
#else
    raise(number);
#endif
}

NOINLINE void interrupted(int depth) {
    if (depth > 0) interrupted(depth - 1);
    else send(SIGUSR1);
    __asm__ volatile("" ::: "memory");
}

#pragma GCC diagnostic ignored "-Winfinite-recursion" // its end is the end of the stack
NOINLINE int overflow(int depth) {
    volatile char room[4096];
    deepest = depth;
    room[0] = (char)depth;
    int below = overflow(depth + 1);
    KEEP(room);
    return below + room[0];
}

int main(int argc, char **argv) {
    (void)argv;
    int overflows = argc > 1 ? 3 : 0;
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    MUST(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_handler = overflow_handler;
    MUST(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < 300; i++) interrupted(i % 10);
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_STACK, &limit);
    for (volatile int i = 0; i < overflows; i++) {
        if (sigsetjmp(rescue, 1) == 0) say("never %d", overflow(0));
        void *block = after_rescue(812);
        FREE(block, 812);
    }
    say("handled %lu", handled);
    say("truth function on_alternate %d %d", 300 + overflows, 300 * 810 + overflows * 811);
    say("truth function interrupted 300 243000");
    say("truth stack 810 on_alternate handler");
    if (overflows) {
        fprintf(stderr, "deepest %d\n", deepest);
        say("truth stack 811 on_alternate overflow_handler");
        say("truth callers 811 overflow overflow overflow main");
        say("truth stack 812 after_rescue main");
    }
    say_truth("total");
    return 0;
}
