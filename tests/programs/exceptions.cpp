// 1,000 exceptions through twenty frames with destructors: every object is destroyed, every block freed.
#include "truth.h"
#include <exception>
#include <stdexcept>

static long built, destroyed, caught, cleaned;

struct Trouble {
    void *block;
    explicit Trouble(int number) : block(NEW(100 + static_cast<size_t>(number % 7))), number(number) { built++; }
    Trouble(const Trouble &other) : block(NEW(100 + static_cast<size_t>(other.number % 7))), number(other.number) { built++; }
    Trouble &operator=(const Trouble &) = delete;
    ~Trouble() {
        FREE(block, 100 + static_cast<size_t>(number % 7));
        destroyed++;
    }
    int number;
};

struct Guard {
    void *block = NEW(40);
    Guard() = default;
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;
    ~Guard() {
        FREE(block, 40);
        cleaned++;
    }
};

NOINLINE void descend(int depth, int number) {
    Guard guard;
    if (depth == 0) throw Trouble(number);
    descend(depth - 1, number);
    KEEP(guard.block);
}

NOINLINE void rethrowing(int number) {
    try {
        descend(20, number);
    } catch (Trouble &) {
        void *in_handler = NEW(77);
        FREE(in_handler, 77);
        throw;
    }
}

NOINLINE void carrying(int number) {
    std::exception_ptr kept;
    try {
        descend(3, number);
    } catch (...) {
        kept = std::current_exception();
    }
    std::rethrow_exception(kept);
}

int main() {
    for (int number = 0; number < 1000; number++) {
        try {
            if (number % 3 == 0) descend(20, number);
            if (number % 3 == 1) rethrowing(number);
            if (number % 3 == 2) carrying(number);
        } catch (const Trouble &trouble) {
            caught += trouble.number == number;
        }
        try {
            throw std::runtime_error("short lived, with a message that does not fit into the object itself");
        } catch (const std::exception &) {
            caught++;
        }
    }
    say("built %ld, destroyed %ld, caught %ld, cleaned %ld", built, destroyed, caught, cleaned);
    say("truth leaked descend 0 0");
    say("truth size 40 %ld", cleaned);
    return built == destroyed ? 0 : 1;
}
