/* Runs a command and says how it ended and the most memory it had resident:
 *
 *     peak [-o FILE] COMMAND [ARGUMENT...]
 *
 * prints {"exit":0,"signal":0,"peak_bytes":27262976} behind whatever the command prints, or writes
 * it to FILE. wait4's figure starts from the peak of the process that forked, so that one must be
 * small: this program is, and a test runner is not. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int first = 1;
  const char* path = NULL;
  if (argc > 2 && strcmp(argv[1], "-o") == 0) {
    path = argv[2];
    first = 3;
  }
  if (first >= argc) {
    fputs("usage: peak [-o FILE] COMMAND [ARGUMENT...]\n", stderr);
    return 2;
  }
  const pid_t child = fork();
  if (child < 0) {
    perror("peak: fork");
    return 1;
  }
  if (child == 0) {
    execvp(argv[first], argv + first);
    perror(argv[first]);
    _exit(127);
  }
  int status = 0;
  struct rusage usage;
  if (wait4(child, &status, 0, &usage) != child) {
    perror("peak: wait4");
    return 1;
  }
  FILE* out = path ? fopen(path, "w") : stdout;
  if (!out) {
    perror(path);
    return 1;
  }
  fprintf(out, "{\"exit\":%d,\"signal\":%d,\"peak_bytes\":%lld}\n",
          WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          1024LL * (long long)usage.ru_maxrss);
  return fclose(out) == 0 ? 0 : 1;
}
