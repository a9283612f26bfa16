// thread_local objects whose destructors allocate and free, in threads and in the first thread, and static objects.
#include "truth.h"
#include <pthread.h>

static unsigned long ended;

NOINLINE void *in_object(size_t size) { return NEW(size); }

struct Object {
    void *block;
    size_t size;
    explicit Object(size_t size) : block(in_object(size)), size(size) {}
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    ~Object() {
        void *last = in_object(size + 1);
        FREE(block, size);
        FREE(last, size + 1);
        truth_add(&ended, 1);
    }
};

static thread_local Object first(700);
static thread_local Object second(800);

struct Report {
    ~Report() {
        say("ended: %lu", ended);
        say("truth function in_object %lu %lu", truth.allocs, truth.bytes);
        say("truth leaked in_object 0 0");
        say_truth("own");
    }
};
static Report report; // built first, so destroyed last
static Object of_process(900);

static void *touch(void *argument) {
    KEEP(first.block);
    KEEP(second.block);
    return argument;
}

int main() {
    touch(nullptr);
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, nullptr, touch, nullptr) == 0 && pthread_join(thread, nullptr) == 0);
    }
    return 0;
}
