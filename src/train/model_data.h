// What a Model is given to train on or predict, as sources. Internal to model*.cc.
#pragma once

#include <memory>
#include <vector>

#include "train/model.h"
#include "train/model_state.h"

namespace pl {

// Of tensors, in the order of the model's inputs and targets. Throws UserError or DataError.
std::unique_ptr<Source> source_of(const char* call, const ModelState& state, const Values& x,
                                  const Values& y, const Values& weights);

// The sources of a fit: training and validation samples, from tensors, a Source or a split; with
// weights where one of them has some.
class FitSources {
 public:
  FitSources(const ModelState& state, Source& data, const FitOptions& options);

  Source* train;
  Source* validation = nullptr;
  Bytes extra_bytes = 0;

 private:
  Source* own(std::unique_ptr<Source> source);
  std::vector<std::unique_ptr<Source>> own_;
};

// What a source that is read batch by batch wants of the options: its own batches, in its order.
FitOptions as_batched(const Source& data, FitOptions options);

int64_t checked_steps(const char* call, int64_t steps);  // throws UserError below 0

// Weights that stateful layers carry from batch to batch.
std::vector<size_t> carried_weights(const Network& network);

}  // namespace pl
