#include <cstdio>

#include "base/terminal.h"
#include "cli/answer.h"
#include "cli/commands.h"

namespace pl {

int run_plan(const RunOptions& options) {
  if (!options.graph.empty()) return run_plan_graph(options);
  const RunSetup setup = set_up_run(options, Purpose::plan);
  const PlanAnswer answer(options, setup);
  if (options.json)
    std::printf("%s\n", answer.json().dump().c_str());
  else
    std::fputs(answer.text(wants_color(human_stream())).c_str(), human_stream());
  if (setup.report.fits) return 0;
  std::fprintf(stderr, "plimsoll: [plan] %s: expected at most %s, needs %s\n%s",
               options.model.c_str(), format_bytes(*options.memory).c_str(),
               format_bytes(setup.report.process).c_str(), explain(setup.report).c_str());
  return 3;
}

}  // namespace pl
