// A pool of OpenMP threads that allocate in parallel loops, tasks and critical sections.
#include "truth.h"

NOINLINE void *in_loop(size_t size) { return NEW(size); }
NOINLINE void *in_task(size_t size) { return NEW(size); }

int main(void) {
    long sum = 0;
#pragma omp parallel for num_threads(6) reduction(+ : sum) schedule(dynamic, 7)
    for (int i = 0; i < 6000; i++) {
        void *block = in_loop(320);
        sum += i;
        FREE(block, 320);
    }
#pragma omp parallel num_threads(4)
#pragma omp single
    for (int i = 0; i < 300; i++) {
#pragma omp task
        {
            void *block = in_task(330);
            FREE(block, 330);
        }
    }
    say("sum %ld", sum);
    say("truth function in_loop 6000 1920000");
    say("truth function in_task 300 99000");
    say_truth("own");
    return 0;
}
