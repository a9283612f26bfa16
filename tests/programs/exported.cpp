// A bit of everything that an export must carry over: threads, inlined functions, reallocs, blocks that stay, blocks
// that do not, more than one size at a place. Deterministic.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

extern "C" void *keep[64];
void *keep[64];

static inline __attribute__((always_inline)) void *inlined_alloc(std::size_t size) {
    void *block = std::malloc(size);
    std::memset(block, 1, size);
    asm volatile("" : : "r"(block) : "memory"); // the compiler would leave the pair out
    return block;
}

__attribute__((noinline)) void leaks(int i) { keep[i] = inlined_alloc(1000 + 100 * (i % 3)); }

__attribute__((noinline)) void temporary() { std::free(inlined_alloc(32)); }

__attribute__((noinline)) void grows() {
    void *block = std::malloc(64);
    for (std::size_t size = 128; size <= 65536; size *= 2) block = std::realloc(block, size);
    std::free(block);
}

template <typename T> __attribute__((noinline)) std::size_t collects(int n) {
    std::vector<T> all;
    for (int i = 0; i < n; i++) all.push_back(T(100, 'x'));
    return all.size();
}

int main() {
    for (int i = 0; i < 30; i++) leaks(i);
    for (int i = 0; i < 100; i++) temporary();
    std::thread worker([] {
        grows();
        keep[63] = std::malloc(4096);
    });
    worker.join();
    return collects<std::string>(500) == 500 ? 0 : 1;
}
