// What `plan` and `train` share: from options to a planned session, its report and its remedies.
#pragma once

#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "cli/options.h"
#include "data/source.h"
#include "model/builtin.h"
#include "report/plan_report.h"
#include "train/loop.h"

namespace pl {

struct RunSetup {
  std::unique_ptr<CpuBackend> backend;
  Network network;
  Compiled compiled;
  LoopOptions loop;
  SampleSpec sample;
  Sources sources;
  SessionPlan plan;
  PlanReport report;  // fits, remedies and max_batch filled in
};

// Everything before memory is reserved. Throws UserError or DataError for bad options and data.
// `want_max_batch`: also search the largest batch within the budget when the given one fits.
RunSetup set_up_run(const RunOptions& options, bool want_max_batch);

}  // namespace pl
