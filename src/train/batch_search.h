// The largest batch that a budget allows.
#pragma once

#include <cstdint>

#include "train/plan_figures.h"

namespace pl {

struct BatchFit {
  int64_t batch = 0;  // 0: not even one sample fits
  Bytes process = 0;
  double step_ms = 0;
};

// The largest batch of at most `most` samples that has a plan within the budget; its bytes and time
// are those of a quick look.
BatchFit largest_batch(const PlanFor& plan, const PlanOptions& options, Bytes budget, int64_t most);
// The same batch with every split: it may be faster.
BatchFit look_closely(const BatchFit& fit, const PlanFor& plan, const PlanOptions& options,
                      Bytes budget);

}  // namespace pl
