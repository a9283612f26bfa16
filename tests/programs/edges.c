// Allocation before main and after it: preinit_array, constructors of all priorities, atexit, destructors, on_exit.
#include "truth.h"

NOINLINE void *at_edge(size_t size) { return NEW(size); }

static void *kept[8];

static void preinit(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    kept[0] = at_edge(1001);
}
#ifdef __GLIBC__
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **, char **) = preinit;
#else
// musl passes over .preinit_array, and has no on_exit.
__attribute__((constructor)) static void instead_of_preinit(void) { preinit(0, NULL, NULL); }
#endif
__attribute__((constructor(101))) static void first(void) { kept[1] = at_edge(1002); }
__attribute__((constructor(500))) static void second(void) { kept[2] = at_edge(1003); }
__attribute__((constructor)) static void third(void) { kept[3] = at_edge(1004); }

static void in_atexit(void) {
    FREE(kept[0], 1001);
    kept[0] = at_edge(1005);
}
static void in_on_exit(int code, void *argument) {
    (void)code, (void)argument;
    kept[4] = at_edge(1006);
    FREE(kept[1], 1002);
}
#ifndef __GLIBC__
static void instead_of_on_exit(void) { in_on_exit(17, NULL); }
#endif
__attribute__((destructor)) static void last_but_one(void) { kept[5] = at_edge(1007); }
__attribute__((destructor(101))) static void last(void) {
    kept[6] = at_edge(1008);
    FREE(kept[2], 1003);
    say("truth function at_edge 8 8036");
    say_truth("total");
}

int main(void) {
    MUST(kept[0] && kept[1] && kept[2] && kept[3]);
    atexit(in_atexit);
#ifdef __GLIBC__
    on_exit(in_on_exit, NULL);
#else
    atexit(instead_of_on_exit);
#endif
    return 17;
}
