// Exports a pthread_mutex_init that takes its time where an object that came late calls it, and forks all the while: so
// there are forks in the middle of a late recorder's first steps, whose allocator makes its locks then. The first child
// of those lives until the program's end.
// Lines on standard input: `child` prints that child's process id, or 0; `past` makes one past the handlers of forks, and
// prints its id; `quit` ends the program, which prints `errors 0`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int is_up, quits, errors;
static volatile int inits;
static volatile pid_t stays;
static int (*init)(pthread_mutex_t *, const pthread_mutexattr_t *);

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
  if (!is_up)
    return 0;
  // Long enough for a fork at each of the first ones, and short enough for the hundreds that follow.
  if (inits++ < 200) {
    struct timespec pause = {0, 4 * 1000 * 1000};
    nanosleep(&pause, NULL);
  }
  return init(mutex, attributes);
}

static void stay_until_killed(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    free(malloc(100));
    usleep(1000);
  }
}

static void *forks(void *unused) {
  while (!quits) {
    int stay = inits > 0 && !stays;
    pid_t child = fork();
    if (child == 0) {
      if (!stay)
        _exit(7);
      stay_until_killed();
    }
    if (child > 0 && stay) {
      stays = child;
      continue;
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
      errors++;
  }
  return unused;
}

int main() {
  init = dlsym(RTLD_NEXT, "pthread_mutex_init");
  is_up = 1;
  pthread_t thread;
  pthread_create(&thread, NULL, forks, NULL);
  char line[16];
  pid_t past = 0;
  while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {
    if (!strcmp(line, "past\n") && (past = _Fork()) == 0)
      stay_until_killed();
    printf("%d\n", past ? past : stays);
    fflush(stdout);
  }
  quits = 1;
  pthread_join(thread, NULL);
  pid_t children[] = {stays, past};
  for (int i = 0; i < 2; i++)
    if (children[i] > 0)
      kill(children[i], SIGKILL), waitpid(children[i], NULL, 0);
  printf("errors %d\n", errors);
  return 0;
}
