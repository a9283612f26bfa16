/* Allocates from code that it makes itself, as a JIT compiler does: a copy of a few instructions in anonymous memory,
 * with a frame pointer so that it can be unwound. Says where the code is, as a perf map would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *kept;

int main(void) {
    /* push rbp; mov rbp, rsp; mov edi, 1234; mov rax, malloc; call rax; pop rbp; ret */
    unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xbf, 0xd2, 0x04, 0, 0, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x5d, 0xc3};
    void *(*function)(size_t) = malloc;
    memcpy(code + 11, &function, 8);
    unsigned char *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return 1;
    memcpy(made, code, sizeof code);
    kept = ((void *(*)(void))made)();
    char line[64];
    int length = snprintf(line, sizeof line, "map %lx %zx\n", (unsigned long)made, sizeof code);
    fwrite(line, 1, length, stdout);
    return kept == NULL;
}
