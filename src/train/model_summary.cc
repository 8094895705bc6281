// Model: summary and what if.
#include "train/model.h"
#include "train/model_call.h"
#include "train/summary.h"
#include "train/what_if.h"

namespace pl {
namespace {

WhatIfReport ask(const ModelCall& call, const Network& network,
                 const std::vector<std::string>& changes) {
  return pl::what_if(network, call.compiled(), changes,
                     [&](const Network& other, const Compiled& compiled) {
                       return call.plan_other(other, compiled);
                     });
}

}  // namespace

WhatIfReport Model::what_if(const SummaryOptions& options) {
  state_->require_built("what_if");
  state_->require_compiled("what_if");
  ModelCall call(*state_, {.kind = StepKind::train,
                           .batch = options.batch_size,
                           .threads = options.threads,
                           .asks = true});
  call.plan(options.memory, false);
  WhatIfReport report = ask(call, state_->network, options.what_if);
  call.keep_plan();
  return report;
}

std::string Model::summary(const SummaryOptions& options) {
  state_->require_built("summary");
  if (!state_->compiled) return summarize(state_->name, state_->network, nullptr, nullptr, {});
  ModelCall call(*state_, {.kind = StepKind::train,
                           .batch = options.batch_size,
                           .threads = options.threads,
                           .asks = true});
  const PlanReport report = call.plan(options.memory, false);
  std::string text =
      summarize(state_->name, state_->network, &*state_->compiled, &call.session_plan(), report);
  if (state_->compiled->dtype == Policy(Dtype::float64)) {
    Compiled narrow = call.compiled();
    narrow.dtype = Dtype::float32;
    const SessionPlan plan = call.plan_other(state_->network, narrow);
    text += "  in float32 instead: " + format_bytes(plan.arena) + " planned (arena), " +
            format_bytes(plan.process()) + " process\n";
  }
  if (!options.what_if.empty()) text += to_text(ask(call, state_->network, options.what_if));
  call.keep_plan();
  return text;
}

}  // namespace pl
