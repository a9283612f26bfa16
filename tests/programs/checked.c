/* A small server in which tests plant faults: checked REQUESTS LEAK BLOCKS allocates BLOCKS blocks a request, between
 * marks, and leaks LEAK bytes in the last one. */
#include <stdlib.h>
#include <string.h>

#include "tracehound.h"

void *volatile kept;
static void *buffer;

__attribute__((noinline)) static void start(void) {
    buffer = malloc(100000);
    memset(buffer, 1, 100000);
}

__attribute__((noinline)) static void parse_request(int blocks) {
    for (int i = 0; i < blocks; i++) {
        void *volatile block = malloc(64);
        free(block);
    }
}

__attribute__((noinline)) static void forget_session(int bytes) { kept = malloc(bytes); }

int main(int argc, char **argv) {
    int requests = argc > 1 ? atoi(argv[1]) : 3, leak = argc > 2 ? atoi(argv[2]) : 0,
        blocks = argc > 3 ? atoi(argv[3]) : 10;
    start();
    for (int i = 0; i < requests; i++) {
        TRACEHOUND(mark, "request");
        parse_request(i == requests - 1 ? blocks : 10);
    }
    TRACEHOUND(mark, "shutdown");
    if (leak) forget_session(leak);
    free(buffer);
    return 0;
}
