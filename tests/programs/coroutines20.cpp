// C++20 coroutines: frames on the heap, resumed from other functions than those that made them.
#include "truth.h"
#include <coroutine>
#include <exception>

static unsigned long frames;

struct Generator {
    struct promise_type {
        int value = 0;
        Generator get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(int next) {
            value = next;
            return {};
        }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
        static void *operator new(size_t size) {
            frames++;
            return NEW(size);
        }
        static void operator delete(void *block, size_t size) { FREE(block, size); }
    };
    std::coroutine_handle<promise_type> handle;
};

NOINLINE Generator count(int to) {
    for (int i = 0; i < to; i++) {
        void *block = NEW(1300);
        co_yield i;
        FREE(block, 1300);
    }
}

NOINLINE int resume_all(Generator &generator) {
    int sum = 0;
    while (generator.handle.resume(), !generator.handle.done()) sum += generator.handle.promise().value;
    return sum;
}

int main() {
    int sum = 0;
    for (int i = 0; i < 200; i++) {
        Generator generator = count(10);
        sum += resume_all(generator);
        generator.handle.destroy();
    }
    say("sum %d, frames %lu", sum, frames);
    say("truth size 1300 2000");
    say_truth("own");
    return 0;
}
