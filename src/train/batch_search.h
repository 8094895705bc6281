// The largest batch that a budget allows.
#pragma once

#include <cstdint>
#include <functional>

#include "train/session.h"

namespace pl {

using PlanForBatch = std::function<SessionPlan(int64_t batch)>;

struct BatchFit {
  int64_t batch = 0;  // 0: not even one sample fits
  Bytes process = 0;
  double step_ms = 0;
};

// The largest batch of at most `most` samples whose plan is within the budget.
BatchFit largest_batch(const PlanForBatch& plan, Bytes budget, int64_t most);

}  // namespace pl
