#include <cstdio>

#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/run_setup.h"
#include "train/what_if.h"

namespace pl {
namespace {

WhatIfReport ask(const RunOptions& options, const RunSetup& setup) {
  const WhatIfPlanner plan = [&](const Network& network, const Compiled& compiled) {
    return plan_session(network, compiled, *setup.backend, setup.plan.signatures, setup.sample,
                        setup.source_bytes, nullptr,
                        {.budget = options.memory,
                         .switches = {.recompute = options.recompute, .split = options.split},
                         .memory = setup.plan.memory});
  };
  return what_if(setup.network, setup.compiled, options.what_if, plan);
}

Json cases_json(const WhatIfReport& report) {
  Json list = Json::array();
  for (const WhatIfCase& one : report.cases) {
    Json json = Json::object().set("layer", one.layer).set("change", one.change);
    if (one.process)
      json.set("to", one.to)
          .set("arena_bytes", *one.arena)
          .set("process_bytes", *one.process)
          .set("ms", one.ms);
    list.push(std::move(json));
  }
  return list;
}

}  // namespace

int run_plan(const RunOptions& options) {
  if (!options.graph.empty()) return run_plan_graph(options);
  const RunSetup setup = set_up_run(options, Purpose::plan);
  std::optional<WhatIfReport> others;
  if (!options.what_if.empty()) others = ask(options, setup);
  if (options.json) {
    Json json = to_json(setup.report);
    if (others) json.set("what_if", cases_json(*others));
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::fputs(to_text(setup.report, wants_color(human_stream())).c_str(), human_stream());
    if (others) std::fprintf(human_stream(), "\n%s", to_text(*others).c_str());
  }
  if (setup.report.fits) return 0;
  std::fprintf(stderr, "plimsoll: [plan] %s: expected at most %s, needs %s\n%s",
               options.model.c_str(), format_bytes(*options.memory).c_str(),
               format_bytes(setup.report.process).c_str(), explain(setup.report).c_str());
  return 3;
}

}  // namespace pl
