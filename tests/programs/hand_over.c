// Blocks that threads hand to each other: hand_over KIND ROUNDS SECONDS
// Each thread goes through so many rounds, or as many as it can in that time.
//
//   slots    four slots, emptied and filled by one exchange
//   mailbox  one pointer, stored plainly when it is null and taken when it is not; two boxes, two threads each
//   lock     eight places under a spin lock, which a plain store unlocks
//   heap     the allocator: every thread frees what it allocated, and gets what another has freed
//
// Each block carries the truth: which thread allocated it as its how-manieth. How often its address was allocated or freed
// stands in a table, of which only the block's owner touches its entry. What each thread did, in its own order, goes into
// the file `truth`; the addresses of the functions that call the allocator go to standard output.
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>

enum { WORKERS = 4, SITES = 6, ALLOC = 0, FREE = 1, REALLOC = 2, NOBODY = 0, ADDRESSES = 1 << 24 };

// What a thread did. `owner` and `number` tell which block: the `number`th one that the worker `owner` allocated.
struct event {
    uint64_t address, old;
    uint32_t number, count;
    uint16_t owner;
    uint8_t kind, site;
    uint32_t old_count;
};

// Behind what allocators write into free blocks.
struct block {
    uint64_t of_allocator[4];
    uint32_t number;
    uint16_t owner;
};

// Events at an address, and one more than the worker that freed there last.
static struct {
    uint32_t count, freed_by;
} at_address[ADDRESSES];

static unsigned long place(const void *block) {
    return ((uintptr_t)block >> 4) % ADDRESSES;
}

static uint32_t counted(const void *block) {
    return ++at_address[place(block)].count;
}

#define SITE(n)                                                                                                        \
    NOINLINE static void *allocate_##n(size_t size) {                                                                  \
        void *block = malloc(size);                                                                                    \
        KEEP(block);                                                                                                   \
        return block;                                                                                                  \
    }                                                                                                                  \
    NOINLINE static void release_##n(void *block) {                                                                    \
        free(block);                                                                                                   \
        __asm__ volatile("" : : "i"(n) : "memory");                                                                    \
    }                                                                                                                  \
    NOINLINE static void *resize_##n(void *block, size_t size) {                                                       \
        void *other = realloc(block, size);                                                                            \
        KEEP(other);                                                                                                   \
        return other;                                                                                                  \
    }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5)
static void *(*const allocate[SITES])(size_t) = {allocate_0, allocate_1, allocate_2, allocate_3, allocate_4, allocate_5};
static void (*const release[SITES])(void *) = {release_0, release_1, release_2, release_3, release_4, release_5};
static void *(*const resize[SITES])(void *, size_t) = {resize_0, resize_1, resize_2, resize_3, resize_4, resize_5};

static long rounds;
static pthread_barrier_t start;
static struct event *events[WORKERS];
static long lens[WORKERS];
static long crossed;

struct worker {
    int index;
    uint32_t number, random;
    long crossed;
};

static unsigned any(struct worker *w) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random;
}

static struct event *note(struct worker *w, int kind, int site, void *block) {
    struct event *event = &events[w->index][lens[w->index]++];
    event->address = (uintptr_t)block;
    event->kind = (uint8_t)kind;
    event->site = (uint8_t)site;
    return event;
}

static int stopped;

// False once the time is over.
static int pause_a_little(int *tries) {
    if (++*tries % 128 == 0)
        sched_yield();
#ifdef __x86_64__
    else
        __builtin_ia32_pause();
#endif
    return !__atomic_load_n(&stopped, __ATOMIC_RELAXED);
}

static struct block *get(struct worker *w) {
    int site = any(w) % SITES;
    struct block *block = allocate[site](96);
    struct event *event = note(w, ALLOC, site, block);
    unsigned freed_by = at_address[place(block)].freed_by;
    if (freed_by != NOBODY && freed_by != w->index + 1u)
        w->crossed++;
    event->count = counted(block);
    event->owner = block->owner = (uint16_t)w->index;
    event->number = block->number = w->number++;
    return block;
}

static void put(struct worker *w, struct block *block) {
    unsigned choice = any(w);
    int site = choice % SITES;
    if (block->owner != w->index)
        w->crossed++;
    if ((choice >> 8) % 16 == 0) {
        uint32_t old_count = counted(block);
        at_address[place(block)].freed_by = w->index + 1u;
        struct block *other = resize[site](block, 112);
        struct event *event = note(w, REALLOC, site, other);
        event->old = (uintptr_t)block;
        event->old_count = old_count;
        event->owner = other->owner;
        event->number = other->number;
        event->count = counted(other);
        other->owner = (uint16_t)w->index;
        other->number = w->number++;
        block = other;
    }
    uint16_t owner = block->owner;
    uint32_t number = block->number, count = counted(block);
    at_address[place(block)].freed_by = w->index + 1u;
    release[site](block);
    struct event *event = note(w, FREE, site, block);
    event->owner = owner;
    event->number = number;
    event->count = count;
}

static struct block *slots[4];

static void through_slots(struct worker *w) {
    struct block *block = get(w);
    block = __atomic_exchange_n(&slots[any(w) % 4], block, __ATOMIC_ACQ_REL);
    if (block)
        put(w, block);
}

static struct block *volatile boxes[WORKERS / 2];

static void through_mailbox(struct worker *w) {
    struct block *volatile *box = &boxes[w->index / 2];
    int tries = 0;
    if (w->index % 2 == 0) {
        struct block *block = get(w);
        while (*box && pause_a_little(&tries))
            ;
        if (*box)
            put(w, block);
        else
            *box = block;
    } else {
        struct block *block;
        while (!(block = *box))
            if (!pause_a_little(&tries))
                return;
        *box = 0;
        put(w, block);
    }
}

static int locked;
static struct block *places[8];

static void through_lock(struct worker *w) {
    struct block *block = get(w);
    unsigned place = any(w) % 8;
    int tries = 0;
    while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
        (void)pause_a_little(&tries);
    struct block *other = places[place];
    places[place] = block;
    __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
    if (other)
        put(w, other);
}

static void through_heap(struct worker *w) {
    struct block *block = get(w);
    for (unsigned i = any(w) % 16; i > 0; i--)
        __asm__ volatile("");
    put(w, block);
}

static void (*step)(struct worker *);

static void *end_in_time(void *seconds) {
    usleep((useconds_t)((intptr_t)seconds * 1000000));
    __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
    return 0;
}

static void *work(void *argument) {
    struct worker w = {.index = (int)(intptr_t)argument, .random = 2654435761u * (1 + (unsigned)(intptr_t)argument)};
    // Its size says which worker this thread is.
    void *name = allocate_0(4096 + w.index);
    KEEP(name);
    pthread_barrier_wait(&start);
    for (long i = 0; i < rounds && !__atomic_load_n(&stopped, __ATOMIC_RELAXED); i++)
        step(&w);
    __atomic_fetch_add(&crossed, w.crossed, __ATOMIC_RELAXED);
    return 0;
}

int main(int count, char **arguments) {
    const char *kind = count > 1 ? arguments[1] : "";
    rounds = count > 2 ? atol(arguments[2]) : 1000;
    step = !strcmp(kind, "slots")     ? through_slots
           : !strcmp(kind, "mailbox") ? through_mailbox
           : !strcmp(kind, "lock")    ? through_lock
                                      : through_heap;
    // An event for the alloc and two for the end of each round's block.
    size_t bytes = (size_t)rounds * 3 * sizeof(struct event);
    for (int i = 0; i < WORKERS; i++) {
        events[i] = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (events[i] == MAP_FAILED)
            return 3;
    }
    pthread_barrier_init(&start, 0, WORKERS);
    pthread_t threads[WORKERS];
    for (intptr_t i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    pthread_t timer;
    pthread_create(&timer, 0, end_in_time, (void *)(intptr_t)(count > 3 ? atoi(arguments[3]) : 5));
    pthread_detach(timer);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], 0);
    int file = open("truth", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    for (int i = 0; i < WORKERS; i++) {
        uint64_t len = (uint64_t)lens[i];
        if (write(file, &len, sizeof len) != sizeof len)
            return 4;
        const char *at = (const char *)events[i], *end = at + len * sizeof(struct event);
        while (at < end) {
            ssize_t done = write(file, at, (size_t)(end - at));
            if (done <= 0)
                return 4;
            at += done;
        }
    }
    close(file);
    for (int site = 0; site < SITES; site++)
        dprintf(1, "site %d %p %p %p\n", site, (void *)allocate[site], (void *)release[site], (void *)resize[site]);
    dprintf(1, "crossed %ld\n", crossed);
    return 0;
}
