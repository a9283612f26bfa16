// Calls through frames of many shapes, in the program and in libraries that it opens: what the linker knew about
// their segments must not matter. With `jit`, code in anonymous memory is called that lies in a hole between the
// program's own segments, where there is one, and keeps a frame pointer; then libgcc sees no further, so the line
// `jit SIZE` is all that is stated.
#include "stacks.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

typedef void *(*callback)(unsigned long);

NOINLINE static void *small(callback f, unsigned long size) {
    void *block = f(size);
    KEEP(block);
    return block;
}

NOINLINE static void *large(callback f, unsigned long size) {
    volatile char room[5000];
    room[size % sizeof room] = 1;
    void *block = small(f, size);
    KEEP(room);
    return block;
}

NOINLINE static void *dynamic(callback f, unsigned long size) {
    volatile char *room = __builtin_alloca(size % 512 + 16);
    room[0] = 1;
    void *block = large(f, size);
    KEEP(room);
    return block;
}

NOINLINE static void *recursive(callback f, unsigned long size, int depth) {
    void *block = depth > 0 ? recursive(f, size, depth - 1) : dynamic(f, size);
    KEEP(block);
    return block;
}

static unsigned long hole_start, hole_end;

static int find_hole(struct dl_phdr_info *info, size_t bytes, void *data) {
    (void)bytes, (void)data;
    unsigned long before = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD) continue;
        unsigned long start = (info->dlpi_addr + header->p_vaddr) & ~4095UL;
        if (before && start - before >= 65536 && !hole_start) hole_start = before, hole_end = start;
        before = (info->dlpi_addr + header->p_vaddr + header->p_memsz + 4095) & ~4095UL;
    }
    return 1;
}

static void *quiet(unsigned long size) {
    void *block = malloc(size);
    KEEP(block);
    return block;
}

static int through_jit(void) {
    // push rbp; mov rbp, rsp; sub rsp, 32; mov rax, rdi; mov rdi, rsi; call rax; add rsp, 32; nop; pop rbp; ret
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x48, 0x89, 0xf8, 0x48,
                                         0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x20, 0x90, 0x5d, 0xc3};
    dl_iterate_phdr(find_hole, NULL);
    void *wish = hole_start ? (void *)(hole_start + 4096) : NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (wish ? MAP_FIXED : 0);
    unsigned char *made = mmap(wish, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
    if (made == MAP_FAILED) return 1;
    memcpy(made, code, sizeof code);
    printf("hole %d\n", wish != NULL);
    for (unsigned long size = 7001; size <= 7010; size++) {
        void *block = ((void *(*)(callback, unsigned long))made)(quiet, size);
        KEEP(block);
        printf("jit %lu\n", size);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "jit")) return through_jit();
    for (int i = 0; i < 20; i++)
        recursive(stated, 2000 + i, i % 7);
    for (int a = 1; a < argc; a++) {
        void *library = dlopen(argv[a], RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        void *(*call)(callback, unsigned long) = (void *(*)(callback, unsigned long))dlsym(library, "library_call");
        for (int i = 0; i < 20; i++) {
            void *block = call(stated, 3000 + 100 * a + i);
            KEEP(block);
        }
    }
    return 0;
}
