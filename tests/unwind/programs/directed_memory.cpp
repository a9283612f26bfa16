// Depth, and the memory of the unwinder: records are forgotten, and everything is given back.
#include "directed.hpp"
#include <algorithm>
#include <pthread.h>

namespace {

__attribute__((noinline)) uint64_t recurse(int depth, Probe how) {
    if (depth == 0)
        return how();
    uint64_t result = recurse(depth - 1, how);
    asm volatile("" : "+r"(result));
    return result;
}

void case_deep() {
    size_t shallow = Backtrace(recurse(0, probe)).depth();
    for (int depth : {1000, 30000, 100000, 30000, 7})
        for (int i = 0; i < 3; i++) {
            Backtrace trace(recurse(depth, probe));
            EXPECT(trace.flags == 0);
            EXPECT(trace.depth() == shallow + (size_t)depth);
        }
    for (int depth : {63, 64, 65, 200, 10000}) {
        std::vector<uint64_t> pcs[2];
        for (volatile int nested = 0; nested < 2; nested++) {
            Backtrace trace(recurse(depth, nested ? probe_nested : probe));
            EXPECT(trace.flags == 0);
            EXPECT(trace.depth() == shallow + (size_t)depth);
            pcs[nested] = trace.pcs;
        }
        EXPECT(pcs[0] == pcs[1]);
    }
}

void *deep_thread(void *) {
    // Deeper than the records that all verified chains may have together.
    size_t shallow = Backtrace(recurse(0, probe)).depth();
    for (int i = 0; i < 3; i++) {
        Backtrace trace(recurse(700000, probe));
        EXPECT(trace.flags == 0);
        EXPECT(trace.depth() == shallow + 700000);
    }
    return nullptr;
}
void case_deeper_than_memory() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128ul << 20);
    pthread_t thread;
    pthread_create(&thread, &attributes, deep_thread, nullptr);
    pthread_join(thread, nullptr);
}

// More stacks than records: they are forgotten and found again, with the same nodes, in bounded memory.
__attribute__((noinline)) uint64_t branch(unsigned path, int left, unsigned *at) {
    if (left == 0) {
        *at = path;
        return probe();
    }
    uint64_t result;
    if (path >> (left - 1) & 1) {
        result = branch(path, left - 1, at);
        asm volatile("# one" : "+r"(result));
    } else {
        result = branch(path, left - 1, at);
        asm volatile("# zero" : "+r"(result));
    }
    return result;
}
} // namespace

__attribute__((noinline)) uint64_t with_room(unsigned path, size_t room, unsigned *at) {
    volatile char bytes[room];
    bytes[0] = 1;
    return branch(path, 12, at) + (uint64_t)bytes[0] - 1;
}

namespace {

void case_forgetting() {
    std::vector<uint32_t> nodes(1 << 12);
    unsigned at = 0;
    uint64_t most = 0;
    for (int round = 0; round < 40; round++)
        for (unsigned path = 0; path < nodes.size(); path++) {
            Backtrace trace(with_room(path, 16 + 16 * (size_t)(round % 20), &at));
            EXPECT(trace.flags == 0 && at == path);
            if (round == 0)
                nodes[path] = trace.node;
            EXPECT(trace.node == nodes[path]);
            most = std::max(most, probe_stat(STAT_BYTES));
        }
    EXPECT(probe_stat(STAT_FORGOTTEN) > 0);
    EXPECT(most < (20u << 20));
    printf("forgotten %lu times, at most %lu bytes\n", probe_stat(STAT_FORGOTTEN), most);
}

long mappings() {
    FILE *maps = fopen("/proc/self/maps", "r");
    long lines = 0;
    for (int c; (c = fgetc(maps)) != EOF;)
        lines += c == '\n';
    fclose(maps);
    return lines;
}
void *short_life(void *) {
    probe();
    probe_destroy();
    return nullptr;
}
void case_destroy_gives_everything_back() {
    long before = 0;
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, short_life, nullptr);
        pthread_join(thread, nullptr);
        if (i == 20)
            before = mappings();
    }
    EXPECT(mappings() <= before + 2);
}

void far_and_forgotten() {
    void *place[2] = {(void *)frame_with_room, (void *)fixed_then_room};
    long room[2] = {96, 64};
    size_t depth[2] = {};
    for (volatile int i = 0; i < 60; i++) {
        size_t now = Backtrace(call_either(place[i % 2], room[i % 2], (void *)inner_keeps_rbp)).depth();
        EXPECT(i < 2 || depth[i % 2] == now);
        depth[i % 2] = now;
        unsigned at;
        for (unsigned path = 0; path < 4096; path++)
            with_room(path, 16 + 16 * (size_t)i, &at);
    }
    EXPECT(depth[0] + 1 == depth[1]);
    EXPECT(probe_stat(STAT_FORGOTTEN) > 0);
}

} // namespace

const DirectedCases memory_cases = {
    {"forgotten-far", far_away<far_and_forgotten>},
    {"deep", case_deep},
    {"deeper-than-memory", case_deeper_than_memory},
    {"forgetting", case_forgetting},
    {"destroy-gives-everything-back", case_destroy_gives_everything_back},
};
