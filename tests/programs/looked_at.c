// What looks at its page tables cost a large process: looked_at GIB MAPPINGS SECONDS
// GIB of memory in pages of 4 KiB, MAPPINGS mappings of a page each, four terabytes of PROT_NONE. The first thread gives back
// and touches a twentieth of the memory again and again, so that looks are due as often as they may be; a second thread maps
// and unmaps 64 KiB thousands of times a second and measures how long that takes by the clock, without the time in which it
// was ready to run and no processor was free. At the end one line: "wall NS" of all that, "recorder NS", processor time of the threads that
// are not the program's; "calls N over1ms N over5ms N longest NS" of the second thread; "look NS", processor time of one look
// that was asked for after all that (0: nobody looked).
#include "truth.h"
#include "tracehound.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#define MIB (1UL << 20)
#define PAGE 4096UL

static volatile int done;
static unsigned long calls, over_1ms, over_5ms, longest;

static unsigned long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000UL + t.tv_nsec;
}

// Nanoseconds that the calling thread has waited for a processor.
static unsigned long waited(int fd) {
    char text[100] = "";
    if (pread(fd, text, sizeof text - 1, 0) <= 0)
        return 0;
    char *second = strchr(text, ' ');
    return second ? strtoul(second, NULL, 10) : 0;
}

// Processor time of all threads but the first and `other`.
static unsigned long of_others(pid_t other) {
    unsigned long sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        int id = atoi(task->d_name);
        char path[64], text[100] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", id);
        int fd = id > 0 && id != getpid() && id != other ? open(path, O_RDONLY) : -1;
        if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
            sum += strtoul(text, NULL, 10);
        if (fd >= 0)
            close(fd);
    }
    closedir(tasks);
    return sum;
}

static char *map(size_t bytes, int protection) {
    char *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

static volatile pid_t mapper;

static void *map_and_unmap(void *argument) {
    mapper = gettid();
    int fd = open("/proc/thread-self/schedstat", O_RDONLY);
    while (!done) {
        unsigned long waited_before = waited(fd), start = now();
        char *at = map(64 << 10, PROT_READ | PROT_WRITE);
        unsigned long took = now() - start, queued = waited(fd) - waited_before;
        took -= queued < took ? queued : took;
        munmap(at, 64 << 10);
        calls++;
        over_1ms += took > 1000000;
        over_5ms += took > 5000000;
        longest = took > longest ? took : longest;
        // The recorder's thread is to look at pages here, not to write these calls.
        usleep(50);
    }
    close(fd);
    return argument;
}

static void touch(char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += PAGE)
        at[i] = 1;
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? atoi(argv[1]) : 1) * 1024 * MIB;
    int mappings = argc > 2 ? atoi(argv[2]) : 0, seconds = argc > 3 ? atoi(argv[3]) : 1;
    char *large = map(bytes, PROT_READ | PROT_WRITE);
    madvise(large, bytes, MADV_NOHUGEPAGE);
    touch(large, bytes);
    for (int i = 0; i < 4; i++)
        map(1UL << 40, PROT_NONE);
    // Neighbours with the same rights would become one.
    for (int i = 0; i < mappings; i++)
        touch(map(PAGE, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ | PROT_WRITE | PROT_EXEC), PAGE);
    pthread_t thread;
    pthread_create(&thread, NULL, map_and_unmap, NULL);
    size_t part = bytes / 20;
    while (!mapper)
        usleep(100);
    unsigned long before = of_others(mapper), start = now(), step = start;
    for (size_t at = 0; now() - start < seconds * 1000000000UL; at = (at + part) % (bytes - part)) {
        at &= ~(PAGE - 1);
        madvise(large + at, part, MADV_DONTNEED);
        // Slowly, so that the looks are measured and not this.
        for (step += 50000000; now() < step;)
            usleep(1000);
        touch(large + at, part);
        for (step += 50000000; now() < step;)
            usleep(1000);
    }
    unsigned long wall = now() - start, recorder = of_others(mapper) - before;
    done = 1;
    pthread_join(thread, NULL);
    enum { LOOKS = 8 };
    unsigned long before_looks = of_others(0);
    for (int i = 0; i < LOOKS; i++)
        TRACEHOUND(look, "cost");
    unsigned long look = (of_others(0) - before_looks) / LOOKS;
    printf("wall %lu recorder %lu calls %lu over1ms %lu over5ms %lu longest %lu look %lu\n", wall, recorder, calls, over_1ms,
           over_5ms, longest, look);
    return 0;
}
