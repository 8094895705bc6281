/* Runs a command on a file system whose time stamps come in steps of ten milliseconds, as those of
 * Linux before 6.13 do:
 *
 *     coarse_times COMMAND [ARGUMENT...]
 *
 * libcoarse_times.so beside this program answers the command's stat calls. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2) {
    fputs("usage: coarse_times COMMAND [ARGUMENT...]\n", stderr);
    return 2;
  }
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const char* slash = length > 0 ? memrchr(path, '/', (size_t)length) : NULL;
  const char name[] = "libcoarse_times.so";
  if (slash == NULL || (size_t)(slash + 1 - path) + sizeof name > sizeof path) {
    fputs("coarse_times: cannot find itself in /proc\n", stderr);
    return 1;
  }
  memcpy(path + (slash + 1 - path), name, sizeof name);
  if (access(path, R_OK) != 0 || setenv("LD_PRELOAD", path, 1) != 0) {
    perror(path);
    return 1;
  }
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
