// A program that brings its own operator new and delete on top of malloc.
#include "truth.h"
#include <new>
#include <string>
#include <vector>

NOINLINE void *operator new(size_t size) {
    void *block = NEW(size + 16);
    if (!block) throw std::bad_alloc();
    *static_cast<size_t *>(block) = size + 16;
    return static_cast<char *>(block) + 16;
}
NOINLINE void operator delete(void *block) noexcept {
    if (!block) return;
    void *start = static_cast<char *>(block) - 16;
    FREE(start, *static_cast<size_t *>(start));
}
NOINLINE void operator delete(void *block, size_t) noexcept { operator delete(block); }

int main() {
    auto words = new std::vector<std::string>;
    for (int i = 0; i < 1000; i++) words->push_back("a word that does not fit into the string itself " + std::to_string(i));
    size_t letters = 0;
    for (const auto &word : *words) letters += word.size();
    say("%zu letters", letters);
    delete words;
    say_truth("own");
    return 0;
}
