// Blocks that threads hand to each other: hand_over KIND ROUNDS SECONDS
// Each thread goes through so many rounds, or as many as it can in that time.
//
//   slots    slots that are emptied and filled by one exchange
//   mailbox  pointers, stored plainly when they are null and taken when they are not; two threads for each row of boxes
//   lock     places under a spin lock, which a plain store unlocks
//   heap     the allocator: every thread frees what it allocated, and gets what another has freed
//
// Almost every block goes over, on a busy machine, too: who finds only blocks of its own lets the others run, and there
// is room for some blocks while they do.
//
// Each block carries the truth: which thread allocated it as its how-manieth. How often its address was allocated or freed
// is in a table, of which only the block's owner touches its entry. What each thread did, in its own order, goes into
// the file `truth`; the addresses of the functions that call the allocator go to standard output.
#include "truth.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>

enum { WORKERS = 4, SITES = 6, ALLOC = 0, FREE = 1, REALLOC = 2, NOBODY = 0, ADDRESSES = 1 << 24, BATCH = 64 };

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
    unsigned turn;
    // Of `heap`.
    struct block *blocks[BATCH];
    unsigned held, batch;
    unsigned long others;
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

static int stopped, ended;

// False once the time is over. A thread that sleeps gets a processor soon after; one that only yields waits behind
// everybody who wants it.
static int pause_a_little(int *tries) {
    if (++*tries % 1024 == 0)
        usleep(20);
    else if (*tries % 128 == 0)
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

// More would make a hand-over last longer, fewer would make it rare when only one of the threads has a processor.
enum { PLACES = 16 };

// Puts the block into any of the places, and frees what was there. A block of its own goes to another place: the others
// want it.
static void pass_on(struct worker *w, struct block *(*exchange)(unsigned place, struct block *block)) {
    struct block *block = get(w);
    int tries = 0;
    do
        block = exchange(any(w) % PLACES, block);
    while (block && block->owner == w->index && !__atomic_load_n(&ended, __ATOMIC_RELAXED) && pause_a_little(&tries));
    if (block)
        put(w, block);
}

static struct block *slots[PLACES];

static struct block *exchange_slot(unsigned place, struct block *block) {
    return __atomic_exchange_n(&slots[place], block, __ATOMIC_ACQ_REL);
}

static void through_slots(struct worker *w) {
    pass_on(w, exchange_slot);
}

static int locked;
static struct block *places[PLACES];

static struct block *exchange_place(unsigned place, struct block *block) {
    int tries = 0;
    while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
        (void)pause_a_little(&tries);
    struct block *other = places[place];
    places[place] = block;
    __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
    return other;
}

static void through_lock(struct worker *w) {
    pass_on(w, exchange_place);
}

// The first two threads have one box, the tightest there is; the others a row of them, which they go through in turn.
static struct block *volatile boxes[WORKERS / 2][PLACES];

static void through_mailbox(struct worker *w) {
    struct block *volatile *row = boxes[w->index / 2];
    struct block *volatile *box = w->index < 2 ? row : &row[w->turn++ % PLACES];
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

// Batches that each thread has freed. A thread that has freed one waits until another one has, too, so that they go
// through the allocator's list together, or at least in turn. Nothing else orders what they do.
static struct {
    unsigned long freed;
    char alone[56];
} __attribute__((aligned(64))) batches[WORKERS];

static unsigned long freed_by_others(const struct worker *w) {
    unsigned long sum = 0;
    for (int i = 0; i < WORKERS; i++)
        sum += i == w->index ? 0 : __atomic_load_n(&batches[i].freed, __ATOMIC_RELAXED);
    return sum;
}

static void through_heap(struct worker *w) {
    if (w->held == 0) {
        int tries = 0;
        while (w->others == freed_by_others(w) && !__atomic_load_n(&ended, __ATOMIC_RELAXED) && pause_a_little(&tries))
            ;
        w->others = freed_by_others(w);
        w->batch = 1 + any(w) % BATCH;
    }
    w->blocks[w->held++] = get(w);
    if (w->held < w->batch)
        return;
    while (w->held > 0)
        put(w, w->blocks[--w->held]);
    __atomic_fetch_add(&batches[w->index].freed, 1, __ATOMIC_RELAXED);
}

static void (*step)(struct worker *);

static void *end_in_time(void *seconds) {
    usleep((useconds_t)((intptr_t)seconds * 1000000));
    __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
    return 0;
}

static void *work(void *argument) {
    struct worker w = {.index = (int)(intptr_t)argument, .others = -1ul};
    w.random = 2654435761u * (1 + (unsigned)w.index);
    // Its size says which worker this thread is.
    void *name = allocate_0(4096 + w.index);
    KEEP(name);
    pthread_barrier_wait(&start);
    for (long i = 0; i < rounds && !__atomic_load_n(&stopped, __ATOMIC_RELAXED); i++)
        step(&w);
    // The others need not wait for this one any more.
    if (step != through_mailbox)
        __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
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
