// A service with one planted fault, which the argument names; what else it does is the same in all of them.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 160 };

static void *kept[65536];
static int kept_count;

static __attribute__((noinline)) void keep(void *block) { kept[kept_count++ & 65535] = block; }

// The faults.
static __attribute__((noinline)) void session_open(void) { keep(malloc(1200)); }
static __attribute__((noinline)) void *cache_insert(void) { return memset(malloc(16000), 3, 16000); }
static __attribute__((noinline)) void *build_report(void) { return calloc(1, 24 << 20); }
static __attribute__((noinline)) void format_line(int n) {
    char *line = malloc(64);
    snprintf(line, 64, "line %d", n);
    __asm__ volatile("" ::"r"(line) : "memory");
    free(line);
}
static __attribute__((noinline)) void index_entry(void) { keep(malloc(40)); }
static __attribute__((noinline)) void *load_document(void) { return malloc(2000); }
static __attribute__((noinline)) void *log_line(int n) { return calloc(1, 700 + n % 3 * 100); }
static __attribute__((noinline)) void append_row(void) {
    static char *rows;
    static size_t bytes;
    // By one row each time, not by a factor.
    rows = realloc(rows, bytes + 2000);
    memset(rows + bytes, 1, 2000);
    bytes += 2000;
}
static __attribute__((noinline)) void *import_batch(void) { return memset(malloc(30000), 4, 30000); }
static __attribute__((noinline)) void reserve_arena(void) { keep(malloc(48 << 20)); }

// What every service does.
static __attribute__((noinline)) void startup_tables(void) { keep(calloc(1, 600000)); }
static __attribute__((noinline)) void handle_request(int n) {
    char *body = malloc(500 + n % 7 * 100);
    char *answer = malloc(3000);
    memset(body, 1, 500);
    free(body);
    __asm__ volatile("" ::"r"(answer) : "memory");
    free(answer);
}

// Four threads do the same work; one of them keeps what it makes.
static void *thread_work(void *name) {
    static __thread void *lines[ROUNDS * 5];
    int keeps = !strcmp(name, "collector");
    pthread_setname_np(pthread_self(), name);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 5; i++) {
            int n = round * 5 + i;
            free(lines[keeps ? n : i]);
            lines[keeps ? n : i] = log_line(n);
        }
        usleep(5000);
    }
    if (!keeps)
        for (int i = 0; i < 5; i++)
            free(lines[i]);
    return NULL;
}

int main(int argc, char **argv) {
    const char *fault = argc > 1 ? argv[1] : "none";
    static void *cache[ROUNDS * 4], *documents[20000], *batches[40];
    int cached = 0, imported = 0;
    // So that no loop is unrolled: a call is one site.
    volatile int calls = 5;
    startup_tables();
    if (!strcmp(fault, "pins")) {
        // Of many documents one small entry each stays, in a page of its own.
        for (int i = 0; i < 20000; i++) {
            documents[i] = load_document();
            if (i % 4 == 0)
                index_entry();
        }
        for (int i = 0; i < 20000; i++)
            free(documents[i]);
    }
    if (!strcmp(fault, "untouched"))
        reserve_arena();
    static const char *const names[] = {"parser", "writer", "collector", "sender"};
    pthread_t threads[4];
    int started = !strcmp(fault, "thread") ? 4 : 0;
    for (int i = 0; i < started; i++)
        pthread_create(&threads[i], NULL, thread_work, (void *)names[i]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 20; i++)
            handle_request(i);
        if (!strcmp(fault, "leak") || (!strcmp(fault, "stopped") && round < ROUNDS / 3))
            for (int i = 0; i < calls; i++)
                session_open();
        if (!strcmp(fault, "cache"))
            for (int i = 0; i < calls - 1; i++)
                cache[cached++] = cache_insert();
        if (!strcmp(fault, "peak") && round == 80) {
            void *report = build_report();
            usleep(2000);
            free(report);
        }
        if (!strcmp(fault, "rows"))
            for (int i = 0; i < calls; i++)
                append_row();
        // A rise in the middle, which is given back long before the end.
        if (!strcmp(fault, "burst") && round >= 40 && round < 80)
            batches[imported++] = import_batch();
        if (round == 130)
            while (imported > 0)
                free(batches[--imported]);
        if (!strcmp(fault, "temporary"))
            for (int i = 0; i < 2000; i++)
                format_line(i);
        usleep(5000);
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    // Everything is given back at the end, as by destructors.
    while (cached > 0)
        free(cache[--cached]);
    return 0;
}
