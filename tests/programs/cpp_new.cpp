// Every operator new and delete, and containers of the standard library.
#include "truth.h"
#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

struct alignas(128) Aligned {
    char room[300];
};

template <typename T> struct Counting {
    using value_type = T;
    Counting() = default;
    template <typename U> Counting(const Counting<U> &) {}
    T *allocate(size_t n) { return static_cast<T *>(count_alloc(::operator new(n * sizeof(T)), n * sizeof(T))); }
    void deallocate(T *block, size_t n) {
        count_free(n * sizeof(T));
        ::operator delete(block);
    }
    template <typename U> bool operator==(const Counting<U> &) const { return true; }
    template <typename U> bool operator!=(const Counting<U> &) const { return false; }
};

NOINLINE void operators() {
    void *block = count_alloc(::operator new(1101), 1101);
    count_free(1101), ::operator delete(block);
    block = count_alloc(::operator new(1102), 1102);
    count_free(1102), ::operator delete(block, static_cast<size_t>(1102));
    block = count_alloc(::operator new[](1103), 1103);
    count_free(1103), ::operator delete[](block);
    block = count_alloc(::operator new(1104, std::nothrow), 1104);
    count_free(1104), ::operator delete(block, std::nothrow);
    block = count_alloc(::operator new[](1105, std::nothrow), 1105);
    count_free(1105), ::operator delete[](block, std::nothrow);
    block = count_alloc(::operator new(1152, std::align_val_t(64)), 1152);
    MUST(reinterpret_cast<size_t>(block) % 64 == 0);
    count_free(1152), ::operator delete(block, std::align_val_t(64));
    block = count_alloc(::operator new[](1280, std::align_val_t(128), std::nothrow), 1280);
    count_free(1280), ::operator delete[](block, std::align_val_t(128));
    auto *aligned = static_cast<Aligned *>(count_alloc(new Aligned, sizeof(Aligned)));
    MUST(reinterpret_cast<size_t>(aligned) % 128 == 0);
    count_free(sizeof(Aligned)), delete aligned;
    auto *array = static_cast<int *>(count_alloc(new int[271], 271 * sizeof(int)));
    count_free(271 * sizeof(int)), delete[] array;
}

NOINLINE void containers() {
    std::vector<long, Counting<long>> vector;
    for (long i = 0; i < 10000; i++) vector.push_back(i);
    std::map<int, int, std::less<int>, Counting<std::pair<const int, int>>> map;
    for (int i = 0; i < 500; i++) map[i * 7919 % 1000] = i;
    std::list<int, Counting<int>> list(100, 7);
    std::basic_string<char, std::char_traits<char>, Counting<char>> string(5000, 'x');
    auto shared = std::allocate_shared<Aligned>(Counting<Aligned>());
    KEEP(shared.get());
    say("containers hold %zu %zu %zu %zu", vector.size(), map.size(), list.size(), string.size());
}

int main() {
    operators();
    containers();
    int refused = 0;
    volatile size_t huge = static_cast<size_t>(-1) / 4;
    try {
        KEEP(::operator new(huge));
    } catch (const std::bad_alloc &) {
        refused++;
    }
    refused += ::operator new(huge, std::nothrow) == nullptr;
    say("refused: %d", refused);
    std::thread([] { operators(); }).join();
    say("truth size 1101 2");
    say("truth size 1152 2");
    say("truth leaked operators 0 0");
    say("truth leaked containers 0 0");
    say("truth function operators %d %zu", 18, 2 * (1101 + 1102 + 1103 + 1104 + 1105 + 1152 + 1280 + sizeof(Aligned) + 271 * sizeof(int)));
    return 0;
}
