// A child that goes on allocating behind a seccomp filter that lets this process see every system call that it makes: prints
// the child's id, then, when standard input ends, ends the child and prints the numbers of all calls since the filter.
#include "truth.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void send_descriptor(int socket, int fd) {
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    MUST(sendmsg(socket, &message, 0) == 1);
}

static int receive_descriptor(int socket) {
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    MUST(recvmsg(socket, &message, 0) == 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

// sendmsg must pass: nobody answers before the descriptor is there.
static void allocate_behind_filter(int socket) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    MUST(listener >= 0);
    send_descriptor(socket, listener);
    for (;;) {
        void *block = malloc(100);
        KEEP(block);
        free(block);
        usleep(2000);
    }
}

int main(void) {
    static unsigned char seen[1024];
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) allocate_behind_filter(ends[1]);
    struct pollfd wait[] = {{.fd = receive_descriptor(ends[0]), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    printf("%d\n", child);
    fflush(stdout);
    while (wait[1].revents == 0) {
        MUST(poll(wait, 2, -1) > 0 || errno == EINTR);
        struct seccomp_notif call = {0};
        if (wait[0].revents & POLLIN && ioctl(wait[0].fd, SECCOMP_IOCTL_NOTIF_RECV, &call) == 0) {
            if (call.data.nr >= 0 && call.data.nr < (int)sizeof seen) seen[call.data.nr] = 1;
            struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
            ioctl(wait[0].fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
        }
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int number = 0; number < (int)sizeof seen; number++)
        if (seen[number]) printf("%d\n", number);
    return 0;
}
