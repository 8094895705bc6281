// What a step of one's own gets and gives back: train_step and test_step of a class derived from
// Model (model.h).
#pragma once

#include <map>
#include <string>

#include "tensor/tensor.h"

namespace pl {

// Named results: {"loss": ..., "accuracy": ...}.
using TensorLogs = std::map<std::string, Tensor>;

// One batch, as symbols of the step: samples are rows. x has the dtype that the model computes in;
// undefined where there is none.
struct StepData {
  Tensors xs, ys, sample_weights;  // of all inputs and targets
  Tensor x() const { return xs.empty() ? Tensor() : xs[0]; }
  Tensor y() const { return ys.empty() ? Tensor() : ys[0]; }
  Tensor sample_weight() const { return sample_weights.empty() ? Tensor() : sample_weights[0]; }
};

}  // namespace pl
