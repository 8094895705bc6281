#include "cli/answer.h"

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

PlanAnswer::PlanAnswer(const RunOptions& options, const RunSetup& setup) : report_(setup.report) {
  if (!options.what_if.empty()) others_ = ask(options, setup);
}

Json PlanAnswer::json() const {
  Json json = to_json(report_);
  if (others_) json.set("what_if", cases_json(*others_));
  return json;
}

std::string PlanAnswer::text(bool color) const {
  return to_text(report_, color) + (others_ ? "\n" + to_text(*others_) : "");
}

}  // namespace pl
