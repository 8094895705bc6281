// Optimisers on values.
#include <cstring>

#include "base/error.h"
#include "op/fill.h"
#include "op/step_params.h"
#include "train/optimizer.h"

namespace pl {

OptimizerState initial_state(const Optimizer& optimizer, std::vector<Trained> weights) {
  check(!weights.empty(), "weights to train");
  OptimizerState state{{}, std::move(weights)};
  auto filled = [](const Slot& slot) {
    return fill(slot.meta.shape, slot.initial, slot.meta.dtype);
  };
  for (const Slot& slot : optimizer.shared_slots(state.weights[0].weight.dtype()))
    state.shared.push_back(filled(slot));
  for (Trained& trained : state.weights)
    for (const Slot& slot : optimizer.slots(trained.path, trained.weight.meta()))
      trained.slots.push_back(filled(slot));
  return state;
}

void apply_gradients(const Optimizer& optimizer, OptimizerState& state, const Tensors& gradients,
                     int64_t steps_before) {
  const int slot = optimizer.iterations_slot();
  const int64_t iterations =
      slot < 0 ? steps_before
               : static_cast<int64_t>(*state.shared[static_cast<size_t>(slot)].data_as<double>());
  const int64_t every = optimizer.update_options().gradient_accumulation_steps.value_or(1);
  const StepParams params{.step = steps_before + 1,
                          .learning_rate = optimizer.rate_at(iterations),
                          .update = iterations / every + 1};
  Tensor numbers(step_params_meta());
  std::memcpy(numbers.data(), &params, sizeof params);
  optimizer.apply(state, gradients, numbers, {.accumulate = (iterations + 1) % every != 0});
}

}  // namespace pl
