// What `plan` and `train` share: from options to a planned session, its report and its remedies.
#pragma once

#include <future>
#include <memory>

#include "backend/backend.h"
#include "cli/options.h"
#include "data/source.h"
#include "execute/cost_table.h"
#include "model/builtin.h"
#include "report/plan_report.h"
#include "train/loop.h"

namespace pl {

struct RunSetup {
  std::unique_ptr<Backend> backend;
  CostTable costs;  // frozen while it plans
  Network network;
  Compiled compiled;
  LoopOptions loop;
  SampleSpec sample;
  Sources sources;
  SessionPlan plan;
  Bytes source_bytes = 0;                 // of the plan's bill
  PlanReport report;                      // fits, remedies and max_batch filled in
  std::future<MadeWeights> weights = {};  // to be trained on a device: begun while it plans
};

// Everything before memory is reserved. Throws UserError or DataError for bad options and data.
// `plan` also searches the largest batch within the budget, and may ask about another machine's
// memory; `train` must fit this machine too.
enum class Purpose : uint8_t { plan, train };
RunSetup set_up_run(const RunOptions& options, Purpose purpose);

}  // namespace pl
