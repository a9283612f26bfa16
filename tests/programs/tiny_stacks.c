// Stacks with room for the allocator and little more: handlers on alternate stacks of the kernel's frame and 768 bytes, also
// as a thread's first event, and on one that lies inside an array of a function; coroutines on 4 KiB; threads that have two
// kilobytes left. To be linked with -z now: resolving a name takes more stack than that.
#include "truth.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SPARE = 768, TIMES = 40, COROUTINE = 4096, THREAD = 16384, LEFT = 2048 };

static char *top;
static volatile size_t frame;

NOINLINE void *on_signal_stack(size_t size) { return NEW(size); }
NOINLINE void *in_coroutine(size_t size) { return NEW(size); }
NOINLINE void *at_the_end(size_t size) { return NEW(size); }

static void measure(int number) {
    (void)number;
    frame = (size_t)(top - (char *)__builtin_frame_address(0));
}

static void handler(int number) {
    (void)number;
    void *block = on_signal_stack(610);
    block = resized(realloc(block, 620), 610, 620);
    FREE(block, 620);
}

#ifdef __x86_64__
// A frame that only the general unwinder can leave: it is found by r12.
void by_r12(void);
NOINLINE void *under_r12(size_t size) { return NEW(size); }
__attribute__((used)) void called_by_r12(void) { FREE(under_r12(650), 650); }
__asm__(".text\n"
        ".globl by_r12\n"
        ".type by_r12, @function\n"
        "by_r12:\n"
        ".cfi_startproc\n"
        "push %r12\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %r12, -16\n"
        "mov %rsp, %r12\n"
        ".cfi_def_cfa_register %r12\n"
        "sub $32, %rsp\n"
        "call called_by_r12\n"
        "mov %r12, %rsp\n"
        ".cfi_def_cfa_register %rsp\n"
        "pop %r12\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size by_r12, .-by_r12\n");

static void odd_handler(int number) {
    (void)number;
    by_r12();
}
#endif

static void give(char *stack, size_t size) {
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    MUST(sigaltstack(&alternate, NULL) == 0);
}

static void handle_by(void (*function)(int)) {
    struct sigaction action = {.sa_handler = function, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
}

// `size` bytes above a page that nobody may touch.
static char *guarded(size_t size) {
    char *pages = mmap(NULL, 4096 + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(pages != MAP_FAILED && mprotect(pages, 4096, PROT_NONE) == 0);
    return pages + 4096;
}

static void *first_event(void *unused) {
    give(guarded(16384), frame + SPARE);
    raise(SIGUSR1);
    return unused;
}

NOINLINE static void inside_an_array(void) {
    char room[32768];
    char *stack = room + 16384;
    memset(room, 0xa5, 16384);
    give(stack, frame + SPARE);
    for (int i = 0; i < TIMES; i++) raise(SIGUSR1);
    for (int i = 0; i < 16384; i++) MUST(room[i] == (char)0xa5);
    KEEP(room);
}

static ucontext_t back;

static void coroutine(void) {
    void *block = in_coroutine(630);
    FREE(block, 630);
}

NOINLINE static void run_coroutine(void) {
    ucontext_t context;
    MUST(getcontext(&context) == 0);
    context.uc_stack.ss_sp = guarded(COROUTINE);
    context.uc_stack.ss_size = COROUTINE;
    context.uc_link = &back;
    makecontext(&context, coroutine, 0);
    MUST(swapcontext(&back, &context) == 0);
}

static char *lowest;

NOINLINE static void go_down(void) {
    volatile char here[128];
    here[0] = 1;
    if ((char *)here - lowest > LEFT + 256) go_down();
    else FREE(at_the_end(640), 640);
    KEEP(here);
}

static void *deep(void *unused) {
    go_down();
    return unused;
}

int main(void) {
    // So that main's own first event is not on a tiny stack; other threads' are.
    void *block = NEW(600);
    top = guarded(65536) + 65536;
    give(top - 65536, 65536);
    handle_by(measure);
    raise(SIGUSR1);
    handle_by(handler);
    give(guarded(16384), frame + SPARE);
    for (int i = 0; i < TIMES; i++) raise(SIGUSR1);
    inside_an_array();
#ifdef __x86_64__
    handle_by(odd_handler);
    for (int i = 0; i < TIMES; i++) raise(SIGUSR1);
    handle_by(handler);
    say("truth stack 650 under_r12 called_by_r12 by_r12");
    say("truth callers 650 by_r12 odd_handler");
    say("truth callers 650 main");
#endif
    pthread_t thread;
    for (int i = 0; i < TIMES; i++)
        MUST(pthread_create(&thread, NULL, first_event, NULL) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < TIMES; i++) run_coroutine();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    for (int i = 0; i < TIMES; i++) {
        lowest = guarded(THREAD);
        MUST(pthread_attr_setstack(&attributes, lowest, THREAD) == 0);
        MUST(pthread_create(&thread, &attributes, deep, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    FREE(block, 600);
    say("truth function on_signal_stack %d %d", 3 * TIMES, 3 * TIMES * 610);
    say("truth stack 610 on_signal_stack handler");
    say("truth function in_coroutine %d %d", TIMES, TIMES * 630);
    say("truth stack 630 in_coroutine coroutine");
    say("truth function at_the_end %d %d", TIMES, TIMES * 640);
    say("truth stack 640 at_the_end go_down go_down");
    say_truth("own");
    return 0;
}
