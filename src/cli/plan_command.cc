#include <cstdio>

#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/run_setup.h"

namespace pl {

int run_plan(const RunOptions& options) {
  if (!options.graph.empty()) return run_plan_graph(options);
  const RunSetup setup = set_up_run(options, Purpose::plan);
  if (options.json) {
    std::printf("%s\n", to_json(setup.report).dump().c_str());
  } else {
    std::fputs(to_text(setup.report, wants_color(human_stream())).c_str(), human_stream());
  }
  if (setup.report.fits) return 0;
  std::fprintf(stderr, "plimsoll: [plan] %s: expected at most %s, needs %s\n%s",
               options.model.c_str(), format_bytes(*options.memory).c_str(),
               format_bytes(setup.report.process).c_str(), explain(setup.report).c_str());
  return 3;
}

}  // namespace pl
