// tcmalloc, linked statically into a C++ program: malloc and operator new are its own, and do not call each other. With
// an argument, operator new throws on the way.
#include "truth.h"
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

extern "C" void *tc_malloc(size_t size);
extern "C" void tc_free(void *block);

struct alignas(128) Wide {
    char bytes[256];
};

NOINLINE char *by_new(size_t size) {
    char *block = new char[size];
    count_alloc(block, size);
    KEEP(block);
    return block;
}

NOINLINE void *by_malloc(size_t size) {
    void *block = NEW(size);
    KEEP(block);
    return block;
}

static void work() {
    for (size_t i = 1; i <= 3000; i++) {
        char *block = by_new(i % 700 + 1);
        KEEP(block);
        count_free(i % 700 + 1);
        delete[] block;
    }
}

int main(int argc, char **) {
    void *block = by_malloc(41001);
    block = resized(realloc(block, 41002), 41001, 41002);
    FREE(block, 41002);
    Wide *wide = new Wide;
    count_alloc(wide, sizeof(Wide));
    MUST((uintptr_t)wide % 128 == 0);
    count_free(sizeof(Wide));
    delete wide;
    int *number = new (std::nothrow) int(7);
    count_alloc(number, sizeof(int));
    KEEP(number);
    count_free(sizeof(int));
    ::operator delete(number, sizeof(int));
    void *direct = count_alloc(tc_malloc(3333), 3333);
    KEEP(direct);
    count_free(3333);
    tc_free(direct);
    if (argc > 1) {
        bool thrown = false;
        try {
            KEEP(::operator new(SIZE_MAX / 2));
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        say("thrown: %d", thrown);
    }
    {
        // The thread objects' own blocks are std's; what is counted here is what work() asks for.
        std::thread first(work), second(work);
        first.join();
        second.join();
    }
    KEEP(by_new(5005));
    say("truth stack 41001 by_malloc main");
    say("truth stack 5005 by_new main");
    say("truth function by_new 6001 %lu", truth.bytes - 41001 - 41002 - sizeof(Wide) - sizeof(int) - 3333);
    say("truth leaked by_new 1 5005");
    say("truth size 3333 1");
    return 26;
}
