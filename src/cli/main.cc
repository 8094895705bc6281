#include "cli/commands.h"
#include "cli/respawn.h"

int main(int argc, char** argv) {
  pl::respawn_with_short_spin(argv);
  return pl::run_command(std::vector<std::string>(argv + 1, argv + argc));
}
