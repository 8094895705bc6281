// Formulas of the losses; model/loss.cc lists them. Internal to model/.
#pragma once

#include "model/loss.h"

namespace pl::formula {

inline constexpr double kEpsilon = 1e-7;  // Keras clips by it

struct Call {
  const Loss& loss;
  Tensor y_true, y_pred;
  Tensor binary;  // BatchFacts
};

// Losses are computed in float32 whatever the layers compute in.
Tensor widened(const Tensor& x);
// Targets in the dtype of the predictions.
Tensor targets_like(const Tensor& y_true, const Tensor& y_pred);

LossResult sparse_categorical_crossentropy(const Call& call);
LossResult categorical_crossentropy(const Call& call);
LossResult mean_squared_error(const Call& call);

}  // namespace pl::formula
