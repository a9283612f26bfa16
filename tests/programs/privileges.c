// Gives up what it has in the way of the argument, then allocates: chroot, setuid, chdir, rename (of the working
// folder), remove (a working folder of its own).
#include "truth.h"
#include <grp.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "chdir";
    char here[1024];
    MUST(getcwd(here, sizeof here));
    for (int i = 0; i < 1000; i++) {
        void *block = NEW(123);
        FREE(block, 123);
    }
    usleep(30000);
    if (!strcmp(way, "chroot")) {
        MUST(mkdir("jail", 0700) == 0 && chroot("jail") == 0 && chdir("/") == 0);
        MUST(access("/bin/sh", F_OK) != 0);
    } else if (!strcmp(way, "setuid")) {
        MUST(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        MUST(setuid(0) != 0);
    } else if (!strcmp(way, "chdir")) {
        MUST(chdir("/") == 0);
    } else if (!strcmp(way, "rename")) {
        char renamed[1100];
        snprintf(renamed, sizeof renamed, "%s-renamed", here);
        MUST(rename(here, renamed) == 0);
    } else {
        MUST(!strcmp(way, "remove"));
        MUST(mkdir("gone", 0700) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
        MUST(getcwd(here, sizeof here) == NULL);
    }
    for (int i = 0; i < 1000; i++) {
        void *block = NEW(321);
        if (i % 2) FREE(block, 321);
    }
    usleep(30000);
    say("done: %s", way);
    say_truth("total");
    return 0;
}
