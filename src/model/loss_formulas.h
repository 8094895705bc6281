// Formulas of the losses; model/loss.cc lists them. Internal to model/.
#pragma once

#include "model/loss.h"

namespace pl::formula {

inline constexpr double kEpsilon = 1e-7;  // Keras clips by it

struct Call {
  const Loss& loss;
  Tensor y_true, y_pred;
  Tensor binary;  // BatchFacts

  double option(const char* name, double otherwise) const {
    return loss.options.real(name, otherwise);
  }
};

// Losses are computed in float32 whatever the layers compute in.
Tensor widened(const Tensor& x);
// Targets in the dtype and rank of the predictions: a last dimension of 1 is added or dropped.
Tensor targets_like(const Tensor& y_true, const Tensor& y_pred);
Tensor constant(double value, const Tensor& like);  // ()
Tensor clip(const Tensor& x, double low, double high);
Tensor power(const Tensor& x, double exponent);  // of x >= 0
// The mean over the last axis; (B,) stays as it is: one number a sample.
Tensor mean_of_last(const Tensor& x);
// x / its length along the axis, which is at least 1e-6, as Keras has it.
Tensor normalized(const Tensor& x, int64_t axis);

LossResult sparse_categorical_crossentropy(const Call& call);
LossResult categorical_crossentropy(const Call& call);
LossResult categorical_focal_crossentropy(const Call& call);
LossResult categorical_generalized_cross_entropy(const Call& call);
LossResult binary_crossentropy(const Call& call);
LossResult binary_focal_crossentropy(const Call& call);
LossResult ctc(const Call& call);

LossResult mean_squared_error(const Call& call);
LossResult mean_absolute_error(const Call& call);
LossResult mean_absolute_percentage_error(const Call& call);
LossResult mean_squared_logarithmic_error(const Call& call);
LossResult cosine_similarity(const Call& call);
LossResult huber(const Call& call);
LossResult log_cosh(const Call& call);
LossResult kl_divergence(const Call& call);
LossResult poisson(const Call& call);

LossResult hinge(const Call& call);
LossResult squared_hinge(const Call& call);
LossResult categorical_hinge(const Call& call);

LossResult dice(const Call& call);
LossResult tversky(const Call& call);
LossResult circle(const Call& call);

}  // namespace pl::formula
