// Losses and metrics with Keras's names and formulas. A loss answers one number per sample; the
// step averages them ("sum_over_batch_size").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

struct LossResult {
  Tensor per_sample;  // (B,)
  Tensor scores;      // (B, ..., C): predictions for metrics
};

struct Loss {
  std::string
      name;  // "sparse_categorical_crossentropy", "categorical_crossentropy", "mean_squared_error"
  bool from_logits = false;
};

// Throws UserError listing the known losses.
Loss loss_from_name(const std::string& name);

// The target that one sample needs for predictions of this shape.
Meta target_meta(const Loss& loss, const Shape& prediction, Dtype dtype);

// y_pred (B, ...); classes are along the last axis, and a sample's loss is the mean over what lies
// between, as Keras has it for sequences. Predictions that come straight out of a softmax are taken
// before it, as Keras does, so that the loss is exact where probabilities would underflow.
LossResult compute_loss(const Loss& loss, const Tensor& y_true, const Tensor& y_pred);

// "accuracy": per sample the share of right positions (B,), chosen by the target's dtype. Throws
// UserError for other names.
Tensor compute_metric(const std::string& metric, const Tensor& y_true, const Tensor& scores);
void check_metric(const std::string& metric);

}  // namespace pl
