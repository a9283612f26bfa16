// A database's cache in small: threads read blocks of varied sizes into a shared cache with a limit and evict each other's,
// fill and drop write buffers, and leave small index entries that live on between them. Then the cache is dropped to a fifth.
// THREADS OPERATIONS MIB; POOL=1 puts the index entries into a pool of their own. TRIM=1: at the end says what resident
// memory is after malloc_trim(0).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <malloc.h>
#include <mutex>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>

#include "tracehound.h"

#define NOINLINE __attribute__((noinline, noclone))

struct Block {
    char *data;
    size_t bytes;
    uint64_t key;
};

struct Shard {
    std::mutex lock;
    std::list<Block> used;
    std::unordered_map<uint64_t, std::list<Block>::iterator> by_key;
    size_t bytes = 0;
};

static Shard shards[16];
static size_t limit;

NOINLINE static char *read_block(size_t bytes) {
    char *block = static_cast<char *>(malloc(bytes));
    memset(block, 1, bytes);
    return block;
}

NOINLINE static char *write_buffer(size_t bytes) {
    char *block = static_cast<char *>(malloc(bytes));
    memset(block, 2, bytes);
    return block;
}

static char *from_pool(size_t bytes) {
    static std::mutex lock;
    static char *at, *end;
    std::lock_guard<std::mutex> held(lock);
    bytes = (bytes + 15) & ~size_t{15};
    if (at + bytes > end) {
        at = static_cast<char *>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        end = at + (1 << 20);
    }
    return (at += bytes) - bytes;
}

NOINLINE static char *index_entry(size_t bytes) {
    static const bool pool = getenv("POOL") != nullptr;
    char *entry = pool ? from_pool(bytes) : static_cast<char *>(malloc(bytes));
    memset(entry, 3, bytes);
    return entry;
}

NOINLINE static void evict(Shard &shard, size_t most) {
    while (shard.bytes > most) {
        Block &last = shard.used.back();
        shard.bytes -= last.bytes;
        shard.by_key.erase(last.key);
        free(last.data);
        shard.used.pop_back();
    }
}

static void worker(int id, int operations, std::vector<char *> *index) {
    std::mt19937_64 random(id * 7919 + 1);
    std::deque<std::vector<char *>> buffers(1);
    size_t buffered = 0;
    for (int i = 0; i < operations; i++) {
        uint64_t key = random() % 60000;
        Shard &shard = shards[key % 16];
        {
            std::lock_guard<std::mutex> held(shard.lock);
            auto found = shard.by_key.find(key);
            if (found != shard.by_key.end()) {
                shard.used.splice(shard.used.begin(), shard.used, found->second);
            } else {
                size_t bytes = 1024 + random() % 7168;
                if (random() % 50 == 0)
                    bytes = 20000 + random() % 60000;
                shard.used.push_front({read_block(bytes), bytes, key});
                shard.by_key[key] = shard.used.begin();
                shard.bytes += bytes;
                evict(shard, limit / 16);
            }
        }
        if (i % 3 == 0) {
            std::string name(20 + random() % 60, 'k'), value(30 + random() % 300, 'v');
            __asm__ volatile("" : : "r"(name.data()), "r"(value.data()) : "memory");
        }
        if (i % 8 == 0) {
            size_t bytes = random() % 4 == 0 ? 4096 * (1 + random() % 8) : 4096;
            buffers.back().push_back(write_buffer(bytes));
            buffered += bytes;
            if (buffered > (2u << 20)) {
                buffers.emplace_back();
                buffered = 0;
                if (buffers.size() > 2) {
                    for (char *block : buffers.front())
                        free(block);
                    buffers.pop_front();
                }
            }
        }
        if (i % 40 == 0)
            index->push_back(index_entry(64 + random() % 200));
    }
    for (auto &buffer : buffers)
        for (char *block : buffer)
            free(block);
}

static long resident() {
    char text[4096];
    FILE *file = fopen("/proc/self/status", "r");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return atol(strstr(text, "RssAnon:") + 8) * 1024;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 8, operations = argc > 2 ? atoi(argv[2]) : 60000;
    limit = static_cast<size_t>(argc > 3 ? atoi(argv[3]) : 96) << 20;
    std::vector<std::vector<char *>> index(threads);
    for (int phase = 0; phase < 2; phase++) {
        std::vector<std::thread> running;
        for (int i = 0; i < threads; i++)
            running.emplace_back(worker, i + phase * threads, operations / 2, &index[i]);
        for (auto &thread : running)
            thread.join();
        for (auto &shard : shards)
            evict(shard, limit / 16 / 5);
    }
    TRACEHOUND(look, "dropped");
    long before = resident();
    if (getenv("TRIM"))
        malloc_trim(0);
    fprintf(stderr, "resident %ld trimmed %ld\n", resident(), before - resident());
    _exit(0);
}
