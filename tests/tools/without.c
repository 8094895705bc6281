/* Runs a command on a system that has no userfaultfd, as inside many containers, or that makes no
 * further threads, as where a limit on them is reached:
 *
 *     without userfaultfd|threads COMMAND [ARGUMENT...] */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(call, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, yes, no)
#define ANSWER(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter userfaultfd_rules[] = {
    WORD(nr),
    IF(SYS_userfaultfd, 0, 1),
    ANSWER(EPERM),
    ALLOW,
};

/* A clone that makes a process is let through; of clone3 a filter cannot see which it is. */
static struct sock_filter thread_rules[] = {
    WORD(nr),
    IF(SYS_clone3, 3, 0),
    IF(SYS_clone, 0, 3),
    WORD(args[0]),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
    ANSWER(EAGAIN),
    ALLOW,
};

int main(int argc, char** argv) {
  const int threads = argc > 2 && strcmp(argv[1], "threads") == 0;
  if (argc < 3 || (!threads && strcmp(argv[1], "userfaultfd") != 0)) {
    fputs("usage: without userfaultfd|threads COMMAND [ARGUMENT...]\n", stderr);
    return 2;
  }
  struct sock_fprog program = {sizeof userfaultfd_rules / sizeof userfaultfd_rules[0],
                               userfaultfd_rules};
  if (threads) {
    program.len = sizeof thread_rules / sizeof thread_rules[0];
    program.filter = thread_rules;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("without");
    return 1;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
