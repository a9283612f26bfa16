// Where things lie that were there before recording began, and one that is the recorder's.
#include "truth.h"
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

static char data[100000];

// A writable page of the recorder, or where it would be.
static int find(struct dl_phdr_info *object, size_t size, void *found) {
    (void)size;
    if (!strstr(object->dlpi_name, "libtracehound.so")) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD && object->dlpi_phdr[i].p_flags & PF_W)
            *(uintptr_t *)found = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr + object->dlpi_phdr[i].p_memsz - 8;
    return 0;
}

int main(void) {
    int local = 0;
    uintptr_t recorder = 0;
    dl_iterate_phdr(find, &recorder);
    // Addresses differ from run to run, traced or not: only the recording's test reads them.
    FILE *places = fopen("places", "w");
    MUST(places);
    fprintf(places, "mapped stack %p\n", (void *)&local);
    fprintf(places, "mapped program %p\n", (void *)(uintptr_t)main);
    fprintf(places, "mapped data %p\n", (void *)(data + 50000));
    fprintf(places, "mapped vdso %#lx\n", getauxval(AT_SYSINFO_EHDR));
    fprintf(places, "recorder data %#lx\n", (unsigned long)recorder);
    MUST(fclose(places) == 0);
    char *later = mmap(NULL, 300 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(later != MAP_FAILED);
    say("truth event map %d 1", 300 * 4096);
    say("truth events map 1");
    return 0;
}
