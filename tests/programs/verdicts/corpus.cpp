// The labelled corpus of verdicts: one program for each way in which memory is kept, chosen by its first argument.
// The allocations in question are made in a function called `subject`. Every run takes about 800 ms, most
// of it asleep until moments that are fixed at its start, so that histories are alike on every machine. The last line that
// it prints says by how many milliseconds the latest turn was late.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "tracehound.h"

static const int TURNS = 700;

static std::uint64_t state = 42;
static std::uint64_t random_below(std::uint64_t limit) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % limit;
}

__attribute__((noinline)) void *subject(std::size_t size) {
    void *block = std::malloc(size);
    std::memset(block, 1, size);
    return block;
}

__attribute__((noinline)) void *subject_again(void *block, std::size_t size) { return std::realloc(block, size); }

// Noise that is not in question.
__attribute__((noinline)) void other_work() {
    for (int i = 0; i < 5; i++) std::free(std::malloc(64 + random_below(512)));
}

static std::vector<void *> kept;

static std::chrono::steady_clock::duration latest{};

template <typename Turn> void turns(Turn turn) {
    auto due = std::chrono::steady_clock::now();
    for (int i = 0; i < TURNS; i++) {
        turn(i);
        other_work();
        due += std::chrono::microseconds(1150);
        std::this_thread::sleep_until(due);
        latest = std::max(latest, std::chrono::steady_clock::now() - due);
    }
}

static void linear_leak() {
    turns([](int) { kept.push_back(subject(100)); });
}

// A queue that swings between nothing and a hundred thousand bytes, and loses one block in two hundred.
static void slow_leak_in_noise() {
    std::vector<void *> queue;
    std::size_t target = 0;
    turns([&](int) {
        for (int i = 0; i < 20; i++) {
            if (queue.size() == target) target = random_below(800);
            if (queue.size() < target) {
                queue.push_back(subject(128));
                if (random_below(200) == 0) kept.push_back(queue.back()), queue.pop_back();
            } else {
                std::free(queue.back()), queue.pop_back();
            }
        }
    });
    for (void *block : queue) std::free(block);
}

// Keys are drawn unevenly; the least recently used entry goes when the cache is full.
static void lru_cache() {
    struct Entry {
        std::uint64_t key;
        void *block;
    };
    std::deque<Entry> entries;
    turns([&](int) {
        for (int i = 0; i < 4; i++) {
            std::uint64_t key = random_below(1 + random_below(2000));
            bool known = false;
            for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
                if (entry->key != key) continue;
                Entry found = *entry;
                entries.erase(entry), entries.push_front(found);
                known = true;
                break;
            }
            if (known) continue;
            entries.push_front({key, subject(200 + random_below(100))});
            if (entries.size() > 300) std::free(entries.back().block), entries.pop_back();
        }
    });
}

static void warm_up_then_flat() {
    turns([](int i) {
        if (i < TURNS / 4) kept.push_back(subject(500));
    });
}

/// Sessions that nobody closes; the requests stop, so that nothing grows any more.
static void stopped_leak() {
    turns([](int i) {
        if (i < TURNS * 3 / 5) kept.push_back(subject(200));
    });
}

static void sawtooth_queue() {
    std::vector<void *> queue;
    turns([&](int i) {
        queue.push_back(subject(300));
        if (i % 50 == 49) {
            for (void *block : queue) std::free(block);
            queue.clear();
        }
    });
}

// Chunks that are all given back at the end of a round; the last round is under way when the program ends.
static void arena() {
    std::vector<void *> chunks;
    turns([&](int i) {
        if (i % 10 == 0) chunks.push_back(subject(65536));
        if (i % 120 == 119) {
            for (void *chunk : chunks) std::free(chunk);
            chunks.clear();
        }
    });
}

static void per_request_leak() {
    int request = 0;
    turns([&](int) {
        for (int i = 0; i < 100; i++, request++) {
            void *block = subject(256);
            if (request % 1000 == 500) kept.push_back(block);
            else std::free(block);
        }
    });
}

static void leak_freed_at_exit() {
    turns([](int) { kept.push_back(subject(150)); });
    for (void *block : kept) std::free(block);
}

static void grown_vector() {
    static void *block = nullptr;
    static std::size_t room = 0, used = 0;
    turns([&](int) {
        for (int i = 0; i < 100; i++, used += 8) {
            if (used + 8 > room) room = room ? 2 * room : 1024, block = subject_again(block, room);
        }
    });
}

// Every thread has a buffer of its own, made when the thread first needs it, kept while it lives.
static void thread_local_caches() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([] {
            thread_local std::vector<void *> cache;
            for (int i = 0; i < TURNS; i++) {
                if (cache.size() < 20) cache.push_back(subject(1000));
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
    }
    for (auto &thread : threads) thread.join();
}

static void phase_change() {
    turns([](int i) {
        if (i == TURNS / 6 || i == TURNS / 2) {
            if (tracehound_mark) tracehound_mark(i == TURNS / 6 ? "load" : "serve");
            for (int j = 0; j < 100; j++) kept.push_back(subject(1000));
        }
    });
}

static void one_time() {
    for (int i = 0; i < 10; i++) kept.push_back(subject(1000));
    turns([](int) {});
}

static void constant_churn() {
    void *block = subject(4096);
    turns([&](int) {
        void *next = subject(4096);
        std::free(block);
        block = next;
    });
    kept.push_back(block);
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)();
    } programs[] = {
        {"linear_leak", linear_leak}, {"slow_leak_in_noise", slow_leak_in_noise}, {"lru_cache", lru_cache},
        {"warm_up_then_flat", warm_up_then_flat}, {"sawtooth_queue", sawtooth_queue},
        {"stopped_leak", stopped_leak}, {"arena", arena},
        {"per_request_leak", per_request_leak}, {"leak_freed_at_exit", leak_freed_at_exit},
        {"grown_vector", grown_vector}, {"thread_local_caches", thread_local_caches},
        {"phase_change", phase_change}, {"one_time", one_time}, {"constant_churn", constant_churn},
    };
    if (argc > 2) state += std::strtoull(argv[2], nullptr, 10);
    for (auto &program : programs) {
        if (argc > 1 && std::strcmp(argv[1], program.name) == 0) {
            program.run();
            std::printf("%d\n", (int)std::chrono::duration_cast<std::chrono::milliseconds>(latest).count());
            return 0;
        }
    }
    std::fprintf(stderr, "usage: corpus PROGRAM [SEED]\n");
    return 2;
}
