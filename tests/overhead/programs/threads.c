/* Eight threads that allocate and free, every tenth block freed by another thread: threads PAIRS
 *
 * Each thread keeps a ring of 64 live blocks. Every tenth block goes into a box of another thread, which frees it when
 * it comes by; so blocks are allocated in one thread's stream and freed in another's. */
#include "report.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 8, RING = 64, BOXES = 32 };

struct box {
    _Atomic(void *) block;
    char own_line[56];
};
static struct box boxes[THREADS][BOXES] __attribute__((aligned(64)));
static unsigned long pairs_each;

#define OWN_FRAME __attribute__((noipa))
#define STAY(n) __asm__ volatile("" : : "i"(n) : "memory")

#define TAKE(n)                                                                                                        \
    static OWN_FRAME void *take_##n(unsigned long i)                                                                   \
    {                                                                                                                  \
        unsigned long *block = malloc(24 + 24 * n + (i & 7));                                                          \
        *block = i;                                                                                                    \
        STAY(n);                                                                                                       \
        return block;                                                                                                  \
    }
TAKE(0) TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5) TAKE(6) TAKE(7)
static void *(*const take[8])(unsigned long) = {take_0, take_1, take_2, take_3, take_4, take_5, take_6, take_7};

static OWN_FRAME void *request(unsigned long i)
{
    void *block = take[i & 7](i);
    STAY(0);
    return block;
}
static OWN_FRAME void *handle(unsigned long i)
{
    void *block = request(i);
    STAY(1);
    return block;
}
static OWN_FRAME void *serve(unsigned long i)
{
    void *block = handle(i);
    STAY(2);
    return block;
}
static OWN_FRAME void drop(void *block)
{
    free(block);
    STAY(3);
}

static void *work(void *argument)
{
    unsigned long self = (unsigned long)argument;
    void *ring[RING] = {0};
    unsigned long dice = self + 1;
    for (unsigned long i = 0; i < pairs_each; i++) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        void *block = serve(dice >> 33);
        if (i % 10 == 9) {
            struct box *box = &boxes[(self + 1 + (dice >> 40) % (THREADS - 1)) % THREADS][(dice >> 50) % BOXES];
            block = atomic_exchange(&box->block, block);
            if (block)
                drop(block);
            box = &boxes[self][i / 10 % BOXES];
            if (atomic_load_explicit(&box->block, memory_order_relaxed)) {
                block = atomic_exchange(&box->block, NULL);
                if (block)
                    drop(block);
            }
            continue;
        }
        void **slot = &ring[(dice >> 45) % RING];
        if (*slot)
            drop(*slot);
        *slot = block;
    }
    for (int i = 0; i < RING; i++)
        drop(ring[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    if (argc != 2)
        return 2;
    pairs_each = strtoul(argv[1], NULL, 10) / THREADS;
    for (unsigned long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < BOXES; k++)
            free(boxes[i][k].block);
    report(pairs_each * THREADS);
    return 0;
}
