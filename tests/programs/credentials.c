// Keeps, drops and raises capabilities of its thread, and changes users and groups between: each as the kernel lets it,
// with blocks in between. Threads of a C library must agree on what it answers.
#include "truth.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void block_of(size_t size) {
    void *block = NEW(size);
    FREE(block, size);
}

static void step(const char *what, int result) {
    say("%s: %d, errno %d, user %d %d, group %d %d", what, result, result ? errno : 0, getuid(), geteuid(), getgid(),
        getegid());
}

/* Leaves these of the permitted capabilities effective. */
static int effective(unsigned mask) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &header, data);
    data[0].effective = data[0].permitted & mask;
    return syscall(SYS_capset, &header, data);
}

int main(int argc, char **argv) {
    const char *order = argc > 1 ? argv[1] : "";
    block_of(501);
    if (!strcmp(order, "kept")) {
        prctl(PR_SET_KEEPCAPS, 1);
        step("user", setresuid(1000, 1000, 1000));
        step("effective", effective(~0U));
        block_of(502);
        step("group", setgid(1000));
        step("groups", setgroups(0, NULL));
    } else if (!strcmp(order, "dropped")) {
        step("effective", effective(~(1U << CAP_SETUID)));
        step("user", setuid(1234));
        block_of(502);
        step("group", setgid(1234));
    } else if (!strcmp(order, "raised")) {
        step("effective", effective(0));
        step("group", setgid(5));
        block_of(502);
        step("effective", effective(~0U));
        step("group", setgid(6));
    } else if (!strcmp(order, "alone")) {
        // This thread alone: past the C library.
        step("user", (int)syscall(SYS_setresuid, 1000, 1000, 1000));
        block_of(502);
        step("same user", setuid(1000));
        step("first user", setuid(0));
    } else if (!strcmp(order, "effective")) {
        step("user", seteuid(1000));
        block_of(502);
        step("back", seteuid(0));
        step("group", setegid(7));
    }
    say("truth size 501 1");
    say("truth size 502 1");
    say_truth("own");
    return 0;
}
