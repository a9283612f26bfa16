// Code made at run time that keeps no frame pointer, destroys rbp, and registers how it is unwound, in the form that the
// first argument names. Each of its stacks is stated as libgcc sees it. The range of a function is used for another one,
// with another frame, after it was deregistered.
//
//     frame  info  bases  table  info-table  table-bases     the form
//     unregistered                                           nothing is registered: `jit SIZE` is all that is stated
//     threads                                                other threads register and deregister meanwhile
#include "stacks.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

extern void __register_frame(void *);
extern void __register_frame_table(void *);
extern void __register_frame_info(void *, void *);
extern void __register_frame_info_table(void *, void *);
extern void __register_frame_info_bases(void *, void *, void *, void *);
extern void __register_frame_info_table_bases(void *, void *, void *, void *);
extern void __deregister_frame(void *);
extern void *__deregister_frame_info(void *);
extern void *__deregister_frame_info_bases(void *);

typedef void *(*callback)(unsigned long);

struct function {
    unsigned char *code, *frames;
    void *table[3];
    // libgcc's object, and some.
    void *object[16];
    // What addresses count from where the encoding is relative to a base.
    unsigned char *text_base, *data_base;
};

static unsigned char *put(unsigned char *at, const void *bytes, size_t count) {
    memcpy(at, bytes, count);
    return at + count;
}

static unsigned char *word(unsigned char *at, uint32_t value) { return put(at, &value, 4); }

// A function with a frame of `room` bytes, and what describes it. `encoding`: absolute, or relative to text or data.
static void make(struct function *function, unsigned room, unsigned char encoding) {
    unsigned char code[] = {
        0x55,                         // push rbp
        0xbd, 1, 0, 0, 0,             // mov ebp, 1
        0x48, 0x81, 0xec, 0, 0, 0, 0, // sub rsp, room
        0x48, 0x89, 0xf8,             // mov rax, rdi
        0x48, 0x89, 0xf7,             // mov rdi, rsi
        0xff, 0xd0,                   // call rax
        0x90, 0x90,                   // nop, nop
        0x48, 0x81, 0xc4, 0, 0, 0, 0, // add rsp, room
        0x5d, 0xc3,                   // pop rbp; ret
    };
    memcpy(code + 9, &room, 4), memcpy(code + 26, &room, 4);
    memcpy(function->code, code, sizeof code);
    function->text_base = function->code - 0x1000;
    function->data_base = function->code - 0x2000;
    unsigned char *at = function->frames, *start = at;
    at = word(word(at, 0), 0);
    const unsigned char common[] = {1, 'z', 'R', 0, 1, 0x78, 16, 1, encoding, 0x0c, 7, 8, 0x90, 1};
    at = put(at, common, sizeof common);
    while ((at - start) % 8 != 4) *at++ = 0;
    word(start, at - start - 4);
    unsigned char *entry = at;
    at = word(word(at, 0), at - start + 4);
    uint64_t begin = (uint64_t)function->code, length = sizeof code;
    if (encoding == 0x20) begin -= (uint64_t)function->text_base;
    if (encoding == 0x30) begin -= (uint64_t)function->data_base;
    at = put(put(at, &begin, 8), &length, 8);
    unsigned cfa = room + 16;
    const unsigned char rules[] = {0, 0x40 | 1, 0x0e, 16, 0x86, 2, 0x40 | 12, 0x0e, (cfa & 0x7f) | 0x80, cfa >> 7};
    at = put(at, rules, sizeof rules);
    while ((at - entry) % 8 != 4) *at++ = 0;
    word(entry, at - entry - 4);
    word(at, 0);
    function->table[0] = function->frames;
    function->table[1] = NULL;
}

static void enter(struct function *f, const char *form) {
    if (!strcmp(form, "frame") || !strcmp(form, "threads")) __register_frame(f->frames);
    if (!strcmp(form, "info")) __register_frame_info(f->frames, f->object);
    if (!strcmp(form, "bases")) __register_frame_info_bases(f->frames, f->object, f->text_base, f->data_base);
    if (!strcmp(form, "table")) __register_frame_table(f->table);
    if (!strcmp(form, "info-table")) __register_frame_info_table(f->table, f->object);
    if (!strcmp(form, "table-bases")) __register_frame_info_table_bases(f->table, f->object, f->text_base, f->data_base);
}

static void leave(struct function *f, const char *form) {
    void *object = f->object;
    if (!strcmp(form, "frame") || !strcmp(form, "threads")) __deregister_frame(f->frames);
    if (!strcmp(form, "info")) object = __deregister_frame_info(f->frames);
    if (!strcmp(form, "bases")) object = __deregister_frame_info_bases(f->frames);
    if (!strcmp(form, "table")) __deregister_frame(f->table);
    if (!strcmp(form, "info-table")) object = __deregister_frame_info(f->table);
    if (!strcmp(form, "table-bases")) object = __deregister_frame_info_bases(f->table);
    // libgcc gives back what it was given.
    if (object != f->object) abort();
}

NOINLINE static void *outer(struct function *function, callback f, unsigned long size) {
    void *block = ((void *(*)(callback, unsigned long))function->code)(f, size);
    KEEP(block);
    return block;
}

static void place(struct function *function) {
    function->code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (function->code == MAP_FAILED) abort();
    function->frames = function->code + 4096;
}

static void *quiet(unsigned long size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

static volatile int done;

static void *registers_others(void *unused) {
    static __thread struct function others[40];
    for (int i = 0; i < 40; i++) place(&others[i]), make(&others[i], 200 + 16 * i, 0);
    while (!done) {
        for (int i = 0; i < 40; i++) enter(&others[i], "frame");
        for (int i = 0; i < 40; i++) leave(&others[i], "frame");
    }
    return unused;
}

int main(int argc, char **argv) {
    const char *form = argc > 1 ? argv[1] : "frame";
    int silent = !strcmp(form, "unregistered");
    unsigned char encoding = !strcmp(form, "bases") ? 0x20 : !strcmp(form, "table-bases") ? 0x30 : 0;
    static struct function first, second;
    place(&first), place(&second);
    unsigned long size = 4000;
    pthread_t threads[2];
    int many = !strcmp(form, "threads");
    for (int i = 0; many && i < 2; i++) pthread_create(&threads[i], NULL, registers_others, NULL);
    for (int round = 0; round < 12; round++) {
        make(&first, 128 + 16 * (round % 5), encoding);
        make(&second, 400 + 16 * (round % 3), encoding);
        enter(&first, form), enter(&second, form);
        for (int i = 0; i < 4; i++, size++) {
            if (silent) printf("jit %lu\n", size);
            outer(i % 2 ? &first : &second, silent ? quiet : stated, size);
        }
        leave(&first, form), leave(&second, form);
    }
    done = 1;
    for (int i = 0; many && i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
