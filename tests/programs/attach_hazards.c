// A program that does what an attach could disturb, over and over, and checks that it went as it should.
//   attach_hazards MODE [FILE]
// Threads of one mode work until a line comes on standard input; then it prints `rounds N errors M`. What each mode
// does is said at its function. FILE: the library that `dlopen` opens.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/rseq.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int quits;
static long rounds, errors;
static const char *file;

static void wrong(const char *what) {
  if (__atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED) <= 10)
    dprintf(2, "wrong: %s (errno %d)\n", what, errno);
}
static void round_done(void) { __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED); }
// The compiler knows malloc, and leaves out a block that nobody else sees.
static void *take(size_t size) {
  void *block = malloc(size);
  __asm__ volatile("" : "+r"(block)::"memory");
  return block;
}
static void churn(void) {
  unsigned char *block = take(100);
  memset(block, 0x5a, 100);
  if (block[99] != 0x5a)
    wrong("a block's bytes");
  free(block);
}

// Opens a library that allocates, looks at the list of objects, closes it.
static int seen(struct dl_phdr_info *info, size_t size, void *count) {
  (void)info, (void)size;
  ++*(int *)count;
  free(take(30));
  return 0;
}
static void *opens(void *unused) {
  while (!quits) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *(*block)(void) = library ? (void *(*)(void))dlsym(library, "plugin_block") : NULL;
    int count = 0;
    dl_iterate_phdr(seen, &count);
    if (!block || count < 3)
      wrong("dlopen");
    else
      free(block());
    if (library && dlclose(library))
      wrong("dlclose");
    round_done();
  }
  return unused;
}

// Forks a child that allocates and ends with a code.
static void *forks(void *unused) {
  while (!quits) {
    pid_t child = fork();
    if (child == 0) {
      churn();
      _exit(7);
    }
    int status = 0;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
      ;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
      wrong("fork");
    round_done();
  }
  return unused;
}

// Becomes another program, in a vfork's child; until then the thread does not come to a stop.
static useconds_t before_exec;
static void *vforks(void *unused) {
  while (!quits) {
    pid_t child = vfork();
    if (child == 0) {
      if (before_exec)
        usleep(before_exec);
      execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
      _exit(1);
    }
    int status = 0;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
      ;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 5)
      wrong("vfork");
    round_done();
  }
  return unused;
}

// Threads that allocate and end, by pthread_exit.
static void *short_lived(void *number) {
  churn();
  pthread_exit(number);
}
static void *threads(void *unused) {
  while (!quits) {
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, short_lived, &rounds) || pthread_join(thread, &result) || result != &rounds)
      wrong("a thread's end");
    round_done();
  }
  return unused;
}

// A timer that interrupts allocations a thousand times a second.
static volatile long ticks;
static void tick(int signal) {
  int kept = errno;
  errno = signal;
  ++ticks;
  errno = kept;
}
static void timed_round(void) {
  errno = 4711;
  churn();
  if (errno != 4711)
    wrong("errno");
  round_done();
}
static void *timed(void *unused) {
  while (!quits)
    timed_round();
  return unused;
}
// Nothing of libc's is called between a call that fails and the look at errno.
static void remember(void) {
  errno = 4711;
  for (long i = 0; i < 1000000; i++)
    __asm__ volatile("" ::: "memory");
  if (errno != 4711)
    wrong("errno");
  round_done();
}
static void *remembers(void *unused) {
  while (!quits)
    remember();
  return unused;
}
// The first thread, too: none waits, so that one is borrowed in the middle of that.
static void remember_until_input(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  do
    for (int i = 0; i < 100; i++)
      remember();
  while (poll(&input, 1, 0) <= 0);
}
// Rounds until there is input, so that no thread waits for it: each is in the allocator, between two calls of it, or in
// the handler.
static void timed_until_input(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  do
    for (int i = 0; i < 100000; i++)
      timed_round();
  while (poll(&input, 1, 0) <= 0);
}

// Counters of each processor in restartable sequences: the sum must be the number of rounds.
#define PROCESSORS 512
static struct {
  long count;
} __attribute__((aligned(64))) counters[PROCESSORS];
static void *restarts(void *unused) {
#if defined(__x86_64__) && defined(RSEQ_SIG)
  struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
  while (!quits) {
    for (int i = 0; i < 1000; i++) {
      int done = 0;
      while (!done) {
        unsigned cpu = *(volatile unsigned *)&area->cpu_id_start;
        __asm__ volatile goto(".pushsection __rseq_cs, \"aw\"\n.balign 32\n"
                              "3: .long 0, 0\n.quad 1f, 2f - 1f, 4f\n.popsection\n"
                              "leaq 3b(%%rip), %%rax\nmovq %%rax, %0\n"
                              "1: cmpl %1, %2\njnz 4f\n"
                              "addq $1, %3\n"
                              "2: jmp 5f\n"
                              ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n"
                              "4: jmp %l[again]\n5:\n"
                              :
                              : "m"(area->rseq_cs), "r"(cpu), "m"(area->cpu_id), "m"(counters[cpu % PROCESSORS].count)
                              : "rax", "memory", "cc"
                              : again);
        done = 1;
      again:;
      }
    }
    churn();
    __atomic_add_fetch(&rounds, 1000, __ATOMIC_RELAXED);
  }
#else
  while (!quits)
    round_done();
#endif
  return unused;
}
static void counted(void) {
#if defined(__x86_64__) && defined(RSEQ_SIG)
  long sum = 0;
  for (int i = 0; i < PROCESSORS; i++)
    sum += counters[i].count;
  if (sum != rounds)
    dprintf(2, "rseq: %ld counted, %ld done\n", sum, rounds), wrong("counters of processors");
#endif
}

// Waits in system calls, each woken once at the end: none may return before, or with another result.
static int pipes[8][2], listener, port;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int signalled;
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}
static void expect(const char *what, long found, long wanted) {
  if (found != wanted || !quits) {
    dprintf(2, "%s returned %ld, not %ld%s\n", what, found, wanted, quits ? "" : ", too early");
    wrong(what);
  }
  round_done();
}
static void *reads(void *unused) {
  char byte = 0;
  expect("read", read(pipes[0][0], &byte, 1), 1);
  if (byte != 'x')
    wrong("what was read");
  return unused;
}
static void *polls(void *unused) {
  struct pollfd one = {.fd = pipes[1][0], .events = POLLIN};
  expect("poll without end", poll(&one, 1, -1), 1);
  return unused;
}
static void *polls_with_end(void *unused) {
  struct pollfd one = {.fd = pipes[2][0], .events = POLLIN};
  expect("poll with an end", poll(&one, 1, 3600000), 1);
  return unused;
}
static void *selects(void *unused) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pipes[3][0], &set);
  expect("select", select(pipes[3][0] + 1, &set, NULL, NULL, NULL), 1);
  return unused;
}
static void *epolls(void *unused) {
  int epoll = epoll_create1(EPOLL_CLOEXEC), found;
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[4][0], &event);
  // Of those that signal(7) lists: a tracer may interrupt it.
  while ((found = epoll_wait(epoll, &event, 1, -1)) == -1 && errno == EINTR)
    ;
  expect("epoll_wait", found, 1);
  return unused;
}
static void *accepts(void *unused) {
  int taken = accept(listener, NULL, NULL);
  expect("accept", taken >= 0, 1);
  return unused;
}
static void *waits_for_condition(void *unused) {
  pthread_mutex_lock(&mutex);
  while (!signalled)
    pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
  expect("pthread_cond_wait", 0, 0);
  return unused;
}
static void *waits_for_semaphore(void *unused) {
  expect("sem_wait", sem_wait(&semaphore), 0);
  return unused;
}
static int word;
static void *waits_for_word(void *unused) {
  expect("futex", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), 0);
  return unused;
}
// Sleeps must be as long as they should, and end without an error.
static void *sleeps(void *unused) {
  while (!quits) {
    double start = now();
    struct timespec time = {.tv_nsec = 200000000}, left;
    if (nanosleep(&time, &left) || now() - start < 0.2)
      wrong("nanosleep");
    round_done();
  }
  return unused;
}
static void *sleeps_until(void *unused) {
  while (!quits) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 1;
    double wanted = until.tv_sec + until.tv_nsec / 1e9;
    if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) || now() < wanted)
      wrong("clock_nanosleep");
    round_done();
  }
  return unused;
}
static void park(void) {
  for (int i = 0; i < 8; i++)
    if (pipe(pipes[i]))
      exit(2);
  sem_init(&semaphore, 0, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (void *)&address, length) || listen(listener, 1) || getsockname(listener, (void *)&address, &length))
    exit(2);
  port = address.sin_port;
}
static void wake(void) {
  for (int i = 0; i < 8; i++)
    if (write(pipes[i][1], "x", 1) != 1)
      exit(2);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&address, sizeof address))
    wrong("connect");
  pthread_mutex_lock(&mutex);
  signalled = 1;
  pthread_cond_broadcast(&condition);
  pthread_mutex_unlock(&mutex);
  sem_post(&semaphore);
  __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0);
}

// Becomes itself again, a hundred times a second, until the file named by FILE is there.
static int execs(char **arguments) {
  churn();
  usleep(10000);
  if (access(arguments[2], F_OK) == 0) {
    printf("rounds 1 errors 0\n");
    return 0;
  }
  execv("/proc/self/exe", arguments);
  return 3;
}

static void *line(void *ids) {
  char text[8];
  if (read(0, text, sizeof text) < 0)
    wrong("read of the line");
  quits = 1;
  (void)ids;
  return NULL;
}

typedef void *work(void *);
static const struct mode {
  const char *name;
  work *work[16];
} modes[] = {
    {"dlopen", {opens, opens, timed}},
    {"fork", {forks, forks, timed}},
    {"vfork", {vforks, vforks, timed}},
    {"slow vfork", {vforks, vforks, timed}},
    {"slow vforks", {vforks, vforks, vforks, timed}},
    {"threads", {threads, threads, threads}},
    {"leader", {timed, timed}},
    {"errno", {remembers, remembers}},
    {"sigprof", {timed, timed}},
    {"rseq", {restarts, restarts, restarts, restarts}},
    {"parked",
     {reads, polls, polls_with_end, selects, epolls, accepts, waits_for_condition, waits_for_semaphore, waits_for_word,
      sleeps, sleeps_until, timed}},
};

static pthread_t ids[16];
static int threads_made;
static void *finish(void *mode) {
  if (!strcmp(mode, "sigprof"))
    timed_until_input();
  if (!strcmp(mode, "errno"))
    remember_until_input();
  line(NULL);
  if (!strcmp(mode, "parked"))
    wake();
  for (int i = 0; i < threads_made; i++)
    pthread_join(ids[i], NULL);
  if (!strcmp(mode, "rseq"))
    counted();
  if (!strcmp(mode, "sigprof") && !ticks)
    wrong("no tick came");
  printf("rounds %ld errors %ld\n", rounds, errors);
  fflush(stdout);
  _exit(errors != 0);
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "";
  file = count > 2 ? arguments[2] : "libm.so.6";
  if (!strcmp(mode, "exec"))
    return execs(arguments);
  if (!strcmp(mode, "parked"))
    park();
  if (!strncmp(mode, "slow vfork", 10))
    before_exec = 400000;
  if (!strcmp(mode, "sigprof")) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &often, NULL);
  }
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    for (int j = 0; !strcmp(mode, modes[i].name) && modes[i].work[j]; j++)
      if (pthread_create(&ids[threads_made++], NULL, modes[i].work[j], NULL))
        return 2;
  if (!threads_made)
    return 2;
  if (!strcmp(mode, "leader")) {
    // The process's first thread is gone, and the process lives.
    pthread_t other;
    pthread_create(&other, NULL, finish, (void *)mode);
    pthread_exit(NULL);
  }
  finish((void *)mode);
}
