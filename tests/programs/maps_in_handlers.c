// A signal handler maps and unmaps a page, again and again, while the program allocates and frees: it interrupts allocators
// and the recorder. Prints how often it ran.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile long handled;

static void map_one(int signal) {
    (void)signal;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    handled++;
}

int main(void) {
    struct sigaction action = {.sa_handler = map_one};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < 2000000; i++) {
        char *block = malloc(100 + i % 5000);
        *(volatile char *)block = 1;
        free(block);
    }
    timer.it_value.tv_usec = timer.it_interval.tv_usec = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
    printf("%ld\n", handled);
    return 0;
}
