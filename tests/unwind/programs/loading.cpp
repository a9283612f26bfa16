// loading CASE DIRECTORY: code that comes and goes. The program's malloc and free take backtraces as the recorder's
// do, and nothing else tells the unwinder that code has changed. DIRECTORY holds the libraries.
#include "check.hpp"
#include "frames.hpp"
#include <iconv.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void __register_frame(void *);
void __deregister_frame(void *);
void add_function(Function) {}
long go(Walk *, int) { return 0; }
long go_with_stack_arguments(Walk *, int, long, long, long, long, long, long, long, long) { return 0; }
}

namespace {

__thread int in_hook;
std::atomic<bool> hooks_on{false};

std::atomic<long> allocations_inside{0};

inline __attribute__((always_inline)) void hook(void *pc, void *frame) {
    allocations_inside += in_hook;
    if (!hooks_on || in_hook)
        return;
    in_hook = 1;
    probe_at((uint64_t)pc, (uint64_t)frame + 16, *(uint64_t *)frame);
    in_hook = 0;
}
#define HOOK() hook(__builtin_return_address(0), __builtin_frame_address(0))

} // namespace

extern "C" void *malloc(size_t size) {
    void *block = __libc_malloc(size);
    HOOK();
    return block;
}
extern "C" void *calloc(size_t count, size_t size) {
    void *block = __libc_calloc(count, size);
    HOOK();
    return block;
}
extern "C" void *realloc(void *old, size_t size) {
    void *block = __libc_realloc(old, size);
    HOOK();
    return block;
}
extern "C" void free(void *block) {
    HOOK();
    __libc_free(block);
}

namespace {

std::string directory;

typedef long (*Callback)(void *);
typedef long (*CallBack)(Callback, void *);

struct Library {
    void *handle;
    CallBack call_back;
    explicit Library(const char *name) {
        handle = dlopen((directory + "/" + name).c_str(), RTLD_NOW);
        if (!handle) {
            fprintf(stderr, "%s\n", dlerror());
            exit(2);
        }
        call_back = (CallBack)dlsym(handle, "call_back");
    }
    void close() { dlclose(handle); }
};

long checks(void *) {
    check(nullptr);
    return 0;
}
long takes_node(void *result) {
    *(uint64_t *)result = probe();
    return 0;
}
Backtrace through(CallBack call_back) {
    uint64_t captured = 0;
    call_back(takes_node, &captured);
    return Backtrace(captured);
}

// The same file comes back: the same nodes, nothing relearned wrongly.
void case_same_library_again() {
    uint32_t first = 0;
    uint64_t address = 0;
    for (int i = 0; i < 20; i++) {
        Library library("frame88.so");
        Backtrace trace = through(library.call_back);
        if (i == 0)
            first = trace.node, address = (uint64_t)library.call_back;
        EXPECT((uint64_t)library.call_back == address);
        EXPECT(trace.node == first);
        EXPECT(probe_generation(trace.node, 1) == 0);
        library.call_back(checks, nullptr);
        library.close();
    }
    EXPECT(counters.mismatches == 0);
}

// Other code takes the place: never a stale rule, never a node of the other code.
void case_other_library_in_its_place() {
    long same = 0;
    std::vector<std::pair<uint32_t, int>> nodes;
    uint64_t last = 0;
    const char *names[] = {"frame88.so", "frameb8.so", "frame128.so"};
    for (int i = 0; i < 120; i++) {
        int which = i % 3;
        Library library(names[which]);
        same += (uint64_t)library.call_back == last;
        last = (uint64_t)library.call_back;
        library.call_back(checks, nullptr);
        library.call_back(checks, nullptr);
        Backtrace trace = through(library.call_back);
        for (auto &[node, other] : nodes)
            EXPECT(node != trace.node || other == which);
        nodes.push_back({trace.node, which});
        library.close();
    }
    EXPECT(same > 100);
    EXPECT(counters.mismatches == 0);
    EXPECT(probe_generation(nodes[0].first, 1) == 0 && probe_generation(nodes[1].first, 1) > 0);
}

// Stacks through the library are still known after so many others were met that their records had to go.
__attribute__((noinline)) uint64_t fill_branch(unsigned path, int left) {
    if (left == 0)
        return probe();
    uint64_t result;
    if (path >> (left - 1) & 1) {
        result = fill_branch(path, left - 1);
        asm volatile("# one" : "+r"(result));
    } else {
        result = fill_branch(path, left - 1);
        asm volatile("# zero" : "+r"(result));
    }
    return result;
}
__attribute__((noinline)) void fill(size_t room) {
    volatile char bytes[room];
    bytes[0] = 1;
    for (unsigned path = 0; path < 4096; path++)
        fill_branch(path, 12);
    asm volatile("" ::"r"(bytes) : "memory");
}
void case_library_known_by_paths_alone() {
    const char *names[] = {"frame88.so", "twin88.so"};
    uint32_t last = 0;
    for (int round = 0; round < 4; round++) {
        Library library(names[round % 2]);
        uint32_t node = 0;
        for (int again = 0; again < 3; again++) {
            Backtrace trace = through(library.call_back);
            EXPECT(again == 0 ? trace.node != last : trace.node == node);
            node = trace.node;
        }
        last = node;
        uint64_t forgotten = probe_stat(STAT_FORGOTTEN);
        for (size_t room = 16; probe_stat(STAT_FORGOTTEN) == forgotten && room < 16 * 60; room += 16)
            fill(room);
        EXPECT(probe_stat(STAT_FORGOTTEN) > forgotten);
        library.close();
    }
}

// The same code in another object takes the place: the backtraces look the same, but the nodes are others.
void case_twin_library_in_its_place() {
    uint32_t last = 0;
    for (int i = 0; i < 10; i++) {
        Library library(i % 2 ? "twin88.so" : "frame88.so");
        uint32_t node = 0;
        for (int again = 0; again < 4; again++) {
            Backtrace trace = through(library.call_back);
            EXPECT(again == 0 ? trace.node != last : trace.node == node);
            node = trace.node;
        }
        last = node;
        library.close();
    }
}

// The same file name at the same place, without build ids to tell what is in it.
void case_unnamed_library_in_its_place() {
    std::string path = directory + "/current" + std::to_string(getpid()) + ".so";
    std::vector<std::pair<uint32_t, int>> nodes;
    for (int i = 0; i < 12; i++) {
        int which = i / 2 % 2;
        unlink(path.c_str());
        EXPECT(link((directory + (which ? "/unnamedb8.so" : "/unnamed88.so")).c_str(), path.c_str()) == 0);
        Library library(path.substr(directory.size() + 1).c_str());
        library.call_back(checks, nullptr);
        Backtrace trace = through(library.call_back);
        for (auto &[node, other] : nodes)
            EXPECT(node != trace.node || other == which);
        if (i % 2)
            EXPECT(nodes.back().first == trace.node);
        nodes.push_back({trace.node, which});
        library.close();
    }
    unlink(path.c_str());
    EXPECT(counters.mismatches == 0);
}

// glibc loads and unloads converters behind dlopen's back.
void case_libraries_of_the_c_library() {
    const char *names[] = {"IBM037", "EBCDIC-US", "IBM500", "KOI8-R", "BIG5", "SHIFT_JIS", "EUC-KR", "ISO-2022-JP"};
    for (int round = 0; round < 3; round++)
        for (const char *name : names) {
            iconv_t converter = iconv_open("UTF-8", name);
            EXPECT(converter != (iconv_t)-1);
            check(nullptr);
            Library library(round % 2 ? "frame88.so" : "frameb8.so");
            library.call_back(checks, nullptr);
            library.close();
            iconv_close(converter);
            check(nullptr);
        }
    EXPECT(counters.mismatches == 0);
}

std::atomic<bool> stop{false};
void *walks(void *) {
    while (!stop) {
        check(nullptr);
        free(malloc(100));
    }
    return nullptr;
}
void case_loading_beside_other_threads() {
    pthread_t threads[3];
    for (pthread_t &thread : threads)
        pthread_create(&thread, nullptr, walks, nullptr);
    for (int i = 0; i < 150; i++) {
        Library library(i % 2 ? "frame88.so" : "frameb8.so");
        library.call_back(checks, nullptr);
        library.close();
    }
    stop = true;
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    EXPECT(counters.mismatches == 0);
}

// --- code made at run time

struct Compiled {
    uint8_t *code;
    uint8_t *frames;
    CallBack call_back;

    // sub $room, %rsp; mov %rdi, %rax; mov %rsi, %rdi; call *%rax; add $room, %rsp; ret
    void make(uint32_t room) {
        const uint8_t bytes[] = {0x48, 0x81, 0xec, 0,    0,    0, 0, 0x48, 0x89, 0xf8, 0x48, 0x89,
                                 0xf7, 0xff, 0xd0, 0x48, 0x81, 0xc4, 0,    0,    0,    0,    0xc3};
        memcpy(code, bytes, sizeof bytes);
        memcpy(code + 3, &room, 4);
        memcpy(code + 18, &room, 4);
        call_back = (CallBack)code;
        uint8_t *at = frames;
        auto word = [&](uint32_t value) { memcpy(at, &value, 4), at += 4; };
        auto byte = [&](std::initializer_list<int> values) {
            for (int value : values)
                *at++ = (uint8_t)value;
        };
        // CIE: "zR", code alignment 1, data alignment -8, return address 16, absolute pointers; CFA = rsp + 8.
        word(20);
        word(0);
        byte({1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1, 0, 0});
        uint8_t *start = at;
        word(0);
        word((uint32_t)(at - frames));
        uint64_t begin = (uint64_t)code, length = sizeof bytes;
        memcpy(at, &begin, 8), at += 8;
        memcpy(at, &length, 8), at += 8;
        byte({0, 0x40 | 7, 0x0e});
        uint32_t offset = room + 8;
        for (; offset >= 0x80; offset >>= 7)
            byte({(int)(offset & 0x7f) | 0x80});
        byte({(int)offset, 0x40 | 15, 0x0e, 8});
        while ((at - start) % 8 != 4)
            byte({0});
        uint32_t fde = (uint32_t)(at - start) - 4;
        memcpy(start, &fde, 4);
        word(0);
    }
    Compiled() {
        code = (uint8_t *)mmap(nullptr, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        frames = code + 4096;
    }
    void announce() {
        __register_frame(frames);
        probe_frames_registered(frames);
    }
    void withdraw() {
        probe_frames_deregistered(frames);
        __deregister_frame(frames);
    }
};

void case_compiled_at_run_time() {
    Compiled compiled;
    for (uint32_t room : {0x18u, 0x58u, 0x1008u, 0x18u}) {
        compiled.make(room);
        // From one place, so that what was known before is asked first.
        for (volatile int step = 0; step < 3; step++) {
            if (step == 1)
                compiled.announce();
            else if (step == 2)
                compiled.withdraw();
            int flags = through(compiled.call_back).flags;
            EXPECT(step == 1 ? flags == 0 : flags & HEURISTIC);
            for (int again = 0; step == 1 && again < 2; again++)
                compiled.call_back(checks, nullptr);
        }
    }
    EXPECT(counters.mismatches == 0);
    // Many at a time, and again in the places that became free.
    std::vector<Compiled> many(300);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < many.size(); i++)
            many[i].make(0x18 + 16 * ((uint32_t)(i * 7 + round) % 90)), many[i].announce();
        for (Compiled &one : many)
            one.call_back(checks, nullptr);
        for (Compiled &one : many)
            one.withdraw();
    }
    EXPECT(counters.mismatches == 0);
}

// Sections that are not what they claim to be.
void case_damaged_registration() {
    uint8_t *page = (uint8_t *)mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 4096, 4096, PROT_NONE);
    Walk walk{};
    walk.random = 12345;
    for (int i = 0; i < 20000; i++) {
        uint8_t *begin = page + 4096 - 4 * (next_random(&walk) % 40 + 1);
        for (uint8_t *at = begin; at < page + 4096; at++)
            *at = (uint8_t)(next_random(&walk) % 3 ? next_random(&walk) % 24 : next_random(&walk));
        probe_frames_registered(begin);
        check(nullptr);
        probe_frames_deregistered(begin);
    }
    probe_frames_registered(nullptr);
    probe_frames_registered(page + 4096);
    probe_frames_registered((void *)8);
    EXPECT(counters.mismatches == 0);
}

// --- unwind information on disk

void case_information_on_disk() {
    void *handle = dlopen((directory + "/hidden.so").c_str(), RTLD_NOW);
    auto call = (long (*)(Callback, void *, int))dlsym(handle, "hidden_call");
    size_t depth = Backtrace(probe()).depth();
    // Until the file has been read, stacks are marked, whatever was found.
    for (int i = 0; i < 3; i++) {
        uint64_t early = 0;
        call(takes_node, &early, 64);
        EXPECT(Backtrace(early).flags & HEURISTIC);
    }
    probe_load_frame_sections();
    for (int i = 0; i < 3; i++)
        for (int bytes = 64; bytes < 200; bytes += 17) {
            uint64_t captured = 0;
            call(takes_node, &captured, bytes);
            Backtrace trace(captured);
            EXPECT(trace.flags == 0);
            EXPECT(trace.depth() == depth + (bytes % 2 ? 3 : 4));
            EXPECT(trace.pcs.back() == Backtrace(probe()).pcs.back());
        }
    auto bare = (CallBack)dlsym(handle, "hidden_bare");
    for (int i = 0; i < 3; i++) {
        Backtrace trace = through(bare);
        EXPECT(trace.flags == HEURISTIC);
        EXPECT(trace.has((void *)bare, 16) && trace.depth() >= Backtrace(probe()).depth() + 2);
    }
    dlclose(handle);
}

// Code that is no library, at the place of one that was unloaded: what was known of the library is gone with it.
void case_code_in_place_of_a_library() {
    Library library("frame88.so");
    Backtrace known = through(library.call_back);
    EXPECT(known.flags == 0);
    char *page = (char *)((uint64_t)library.call_back & ~4095ull);
    static char code[4096];
    memcpy(code, page, sizeof code);
    library.close();
    void *place = mmap(page, sizeof code, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT(place == page);
    if (place != page)
        return;
    memcpy(page, code, sizeof code);
    for (int i = 0; i < 3; i++) {
        Backtrace trace = through(library.call_back);
        EXPECT(trace.flags & HEURISTIC);
        EXPECT(trace.has((void *)library.call_back, 32));
    }
    munmap(page, sizeof code);
}

struct Case {
    const char *name;
    void (*run)();
} const cases[] = {
    {"same-library-again", case_same_library_again},
    {"other-library-in-its-place", case_other_library_in_its_place},
    {"library-known-by-paths-alone", case_library_known_by_paths_alone},
    {"twin-library-in-its-place", case_twin_library_in_its_place},
    {"unnamed-library-in-its-place", case_unnamed_library_in_its_place},
    {"libraries-of-the-c-library", case_libraries_of_the_c_library},
    {"loading-beside-other-threads", case_loading_beside_other_threads},
    {"compiled-at-run-time", case_compiled_at_run_time},
    {"damaged-registration", case_damaged_registration},
    {"information-on-disk", case_information_on_disk},
    {"code-in-place-of-a-library", case_code_in_place_of_a_library},
};

} // namespace

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    directory = argv[2];
    probe();
    hooks_on = true;
    for (const Case &one : cases)
        if (strcmp(argv[1], one.name) == 0) {
            one.run();
            hooks_on = false;
            // Taking a backtrace must not allocate, whatever it takes.
            EXPECT(allocations_inside == 0);
            return failures ? 1 : 0;
        }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 2;
}
