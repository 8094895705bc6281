#include <cstdio>

#include "base/file.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "plan/graph_file.h"

namespace pl {

int run_plan_graph(const RunOptions& options) {
  constexpr Bytes kMostBytes = 100'000'000;
  const GraphFile file = read_graph(read_text_file(options.graph, kMostBytes), options.graph);
  const GraphAnswer answer = plan_graph(file, options.graph, options.memory, options.frontier);
  if (options.json)
    std::printf("%s\n", answer.json.dump().c_str());
  else
    std::fputs(answer.text.c_str(), human_stream());
  if (answer.fits) return 0;
  std::fprintf(stderr, "plimsoll: [plan] %s: expected at most %s, needs %s\n",
               options.graph.c_str(), format_bytes(*options.memory).c_str(),
               format_bytes(answer.json.at("process_bytes", "answer").as_integer("bytes")).c_str());
  return 3;
}

}  // namespace pl
