#include "base/terminal.h"

#include <unistd.h>

#include <cstdlib>

namespace pl {

std::FILE* human_stream() { return is_terminal(stdout) ? stdout : stderr; }

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) != 0; }

bool wants_color(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(stream) && !(no_color && *no_color);
}

}  // namespace pl
