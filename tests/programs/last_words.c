// Loads a plug-in, names a thread and a request context, sets a mark, and is killed a moment later: what it does last has
// names, as what it did first has. Its argument is the plug-in.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../preload/include/tracehound.h"

static sem_t has_worked;

static void *works(void *unused) {
  pthread_setname_np(pthread_self(), "latecomer");
  void *block = malloc(4321);
  __asm__ volatile("" ::"r"(block) : "memory");
  sem_post(&has_worked);
  usleep(400000);
  return unused;
}

int main(int argc, char **argv) {
  // Behind all that the recorder writes at its start.
  usleep(300000);
  void *plugin = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
  void *(*work)(void) = plugin ? (void *(*)(void))dlsym(plugin, "plugin_block") : NULL;
  if (!work)
    return 2;
  void *block = work();
  __asm__ volatile("" ::"r"(block) : "memory");
  pthread_t thread;
  // On a busy machine it may begin late.
  if (sem_init(&has_worked, 0, 0) || pthread_create(&thread, NULL, works, NULL) || sem_wait(&has_worked))
    return 2;
  tracehound_context_name(7, "GET /items");
  tracehound_context_set(7);
  block = malloc(5432);
  __asm__ volatile("" ::"r"(block) : "memory");
  tracehound_mark("just before");
  // The recorder writes everything every 200 ms, what names events within some.
  usleep(100000);
  kill(getpid(), SIGKILL);
  return 0;
}
