// The few numbers that change from step to step without a new plan. They travel as one small input
// value, so that schedules, seeds and row counts need neither re-planning nor a second graph.
#pragma once

#include <cstdint>

#include "tensor/shape.h"

namespace pl {

struct StepParams {
  int64_t step = 0;  // 1 in the first step
  uint64_t seed = 0;
  double learning_rate = 0;
  int64_t update = 0;      // Adam's t, where it is not the step: gradients may be accumulated over
                           // several, or not be finite; 0: the step
  int64_t rows = 0;        // samples in the full batch
  int64_t row_offset = 0;  // of this micro-batch's first sample in the full batch
  int64_t call_rows = 0;   // samples in this micro-batch; 0: all
  int64_t band = 0;        // which band of a sample's image rows this call has

  int64_t updates() const { return update > 0 ? update : step; }
};
static_assert(sizeof(StepParams) == 64);

inline Meta step_params_meta() { return {Dtype::uint8, Shape{64}}; }

}  // namespace pl
