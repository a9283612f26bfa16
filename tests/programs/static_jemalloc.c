// jemalloc, linked statically into a C program: its own functions beside the C library's names. With -DPREFIXED they
// are called je_malloc and so on, and the C library's names are the C library's.
#include "truth.h"
#include <pthread.h>
#include <stdint.h>
#ifdef PREFIXED
#define JE(name) je_##name
#else
#define JE(name) name
#endif

void *JE(mallocx)(size_t size, int flags);
void *JE(rallocx)(void *block, size_t size, int flags);
size_t JE(xallocx)(void *block, size_t size, size_t extra, int flags);
size_t JE(sallocx)(const void *block, int flags);
void JE(dallocx)(void *block, int flags);
void JE(sdallocx)(void *block, size_t size, int flags);
int JE(mallctl)(const char *name, void *old, size_t *old_len, void *new, size_t new_len);
void *JE(malloc)(size_t size);
void *JE(calloc)(size_t count, size_t size);
void *JE(realloc)(void *block, size_t size);
void JE(free)(void *block);
int JE(posix_memalign)(void **out, size_t align, size_t size);
void *JE(aligned_alloc)(size_t align, size_t size);

NOINLINE void *by_mallocx(size_t size) {
    void *block = count_alloc(JE(mallocx)(size, 6), size);
    KEEP(block);
    return block;
}

NOINLINE void *by_malloc(size_t size) {
    void *block = count_alloc(JE(malloc)(size), size);
    KEEP(block);
    return block;
}

static void *worker(void *argument) {
    for (uintptr_t i = 0; i < 5000; i++) {
        size_t size = i * 7 % 900 + 1;
        char *block = by_malloc(size);
        block[0] = (char)(uintptr_t)argument;
        if (i % 3 == 0) {
            block = resized(JE(realloc)(block, size * 3), size, size * 3);
            size *= 3;
        }
        count_free(size);
        if (i % 2) JE(sdallocx)(block, size, 0);
        else JE(free)(block);
    }
    return NULL;
}

// Mappings that can be both written and executed.
static int writable_code(void) {
    static char maps[1 << 16];
    FILE *file = fopen("/proc/self/maps", "r");
    setvbuf(file, NULL, _IONBF, 0);
    size_t len = fread(maps, 1, sizeof maps - 1, file);
    fclose(file);
    maps[len] = 0;
    int count = 0;
    for (char *at = maps; (at = strstr(at, " rwx")); at++) count++;
    return count;
}

int main(void) {
    void *block = by_mallocx(41001);
    MUST((uintptr_t)block % 64 == 0);
    block = resized(JE(rallocx)(block, 41002, 6), 41001, 41002);
    char *large = count_alloc(JE(mallocx)(4 << 20, 0), 4 << 20);
    MUST(JE(xallocx)(large, 2 << 20, 0, 0) >= 2 << 20);
    resized(large, 4 << 20, 2 << 20);
    void *small = by_malloc(32);
    MUST(JE(xallocx)(small, 1 << 20, 0, 0) < 1 << 20);
    MUST(JE(sallocx)(small, 0) == 32);
    count_free(2 << 20), JE(sdallocx)(large, 2 << 20, 0);
    count_free(41002), JE(dallocx)(block, 0);
    count_free(32), JE(free)(small);

    void *many = count_alloc(JE(calloc)(7, 1001), 7007);
    many = resized(JE(realloc)(many, 50003), 7007, 50003);
    count_free(50003), JE(free)(many);
    void *aligned = NULL;
    MUST(JE(posix_memalign)(&aligned, 4096, 5005) == 0 && (uintptr_t)aligned % 4096 == 0);
    count_alloc(aligned, 5005);
    count_alloc(JE(aligned_alloc)(128, 1280), 1280);
    count_free(5005), JE(free)(aligned);
    JE(free)(NULL);
    errno = 0;
    volatile size_t too_much = SIZE_MAX / 2;
    MUST(JE(malloc)(too_much) == NULL && errno == ENOMEM);
    errno = 77;
    void *kept = by_malloc(100);
    count_free(100), JE(free)(kept);
    MUST(errno == 77);

    unsigned arenas = 0;
    size_t len = sizeof arenas;
    MUST(JE(mallctl)("opt.narenas", &arenas, &len, NULL, 0) == 0 && arenas > 0);
    MUST(JE(mallctl)("no.such.name", NULL, NULL, NULL, 0) != 0);

    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) MUST(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    say("writable code: %d", writable_code());
    say("truth stack 41001 by_mallocx main");
    say("truth size 5005 1");
    say("truth size 41002 1");
    say_truth("own");
    return 25;
}
