// Blocks of many size classes, of which `keep` allocates one in 24 and `pass` the rest. `pass` frees its own; then `keep` does, and
// resident memory shrinks by what its blocks have held. Prints that: `held BYTES`. The allocator is asked to give back what it can.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tracehound.h"

#define COUNT 240000
static const size_t sizes[] = {48, 80, 112, 320, 640, 1792, 3072, 5120, 7168, 12000};
static char *kept[COUNT], *passed[COUNT];

static __attribute__((noinline, noclone)) char *keep(size_t bytes) { return memset(malloc(bytes), 1, bytes); }
static __attribute__((noinline, noclone)) char *pass(size_t bytes) { return memset(malloc(bytes), 2, bytes); }

static void give_back(void) {
    void (*collect)(bool) = dlsym(RTLD_DEFAULT, "mi_collect");
    void (*release)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
    void (*idle)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_MarkThreadIdle");
    int (*control)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    if (collect)
        collect(true);
    if (idle)
        idle();
    if (release)
        release();
    if (control) {
        control("thread.tcache.flush", NULL, NULL, NULL, 0);
        control("arena.4096.purge", NULL, NULL, NULL, 0);
    }
    if (!collect && !release && !control)
        malloc_trim(0);
}

static long resident(void) {
    char text[4096];
    FILE *file = fopen("/proc/self/status", "r");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return atol(strstr(text, "RssAnon:") + 8) * 1024;
}

int main(void) {
    srandom(3);
    for (int i = 0; i < COUNT; i++) {
        // Fewer of the large ones.
        size_t bytes = sizes[random() % 10];
        if (bytes > 1000 && random() % 8)
            continue;
        if (random() % 24 == 0)
            kept[i] = keep(bytes);
        else
            passed[i] = pass(bytes);
    }
    for (int i = 0; i < COUNT; i++)
        free(passed[i]);
    give_back();
    TRACEHOUND(look, "held");
    long before = resident();
    for (int i = 0; i < COUNT; i++)
        free(kept[i]);
    give_back();
    printf("held %ld\n", before - resident());
    fflush(stdout);
    _exit(0);
}
