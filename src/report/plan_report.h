// What a plan says, for people (a table) and for programs (the JSON object of `plimsoll plan`).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/session.h"

namespace pl {

struct Remedy {
  std::string change;  // "--batch 16"
  Bytes process_bytes = 0;
  double step_ms = 0;
};

struct PlanReport {
  std::string model, optimizer, device = "cpu";
  Dtype dtype = Dtype::float32;
  int64_t batch = 0;
  int threads = 1;
  std::optional<Bytes> budget;
  bool fits = true;
  Bytes process = 0, fixed = 0, arena = 0, bound = 0, persistent = 0, floor = 0;
  Categories categories{};
  double step_ms = 0;
  std::optional<int64_t> max_batch;
  size_t graph_nodes = 0, plan_steps = 0;
  double plan_ms = 0;
  std::string numerics;
  std::vector<Remedy> remedies;
  std::vector<LiveValue> culprits;  // the largest values at the fullest step
};

PlanReport describe(const SessionPlan& plan);  // the figures of the plan itself

Json to_json(const PlanReport& report);
std::string to_text(const PlanReport& report, bool color);
// The part of a "does not fit" message behind its first line: minimum, bound, culprits, remedies.
std::string explain(const PlanReport& report);

}  // namespace pl
