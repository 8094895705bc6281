#include <csignal>

#include "backend/cpu/code_pages.h"
#include "cli/commands.h"
#include "cli/respawn.h"

int main(int argc, char** argv) {
  // A closed pipe or a file-size limit is an error of the write, with a message, not the end of us.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  pl::respawn_with_short_spin(argv);
  pl::hold_code_by_page();
  return pl::run_command(std::vector<std::string>(argv + 1, argv + argc));
}
