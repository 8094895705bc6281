// Losses with Keras's names, options and formulas: by name, by a function with options
// (losses.h), or the user's own. A loss gives values (B, ...) for its predictions, which a
// reduction brings to one number.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/attrs.h"
#include "tensor/tensor.h"

namespace pl {

// From y_true (B, ...) and y_pred (B, ...) to values (B, ...) or (). Called while a step is traced:
// made of op functions.
using LossFunction = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;

struct Loss {
  std::string name;  // "sparse_categorical_crossentropy", "mean_squared_error", ...
  bool from_logits = false;
  std::string reduction =
      "sum_over_batch_size";        // "mean", "sum", "mean_with_sample_weight", "none"
  Attrs options = {};               // label_smoothing, axis, delta, ...; absent: Keras's default
  LossFunction function = nullptr;  // the user's; the name is for messages then

  // The reduced loss; sample_weight (B,) or like the values.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;
};

// Throws UserError listing the known losses. Also "mse", "mae" and Keras's other short names.
Loss loss_from_name(const std::string& name);
// Throws UserError unless name, reduction and options are such as are known.
void check_loss(const Loss& loss);

// What one sample's target looks like for predictions of this shape; nothing where any will do. A
// dense target may be of any dtype: the step casts it.
std::optional<Meta> target_meta(const Loss& loss, const Shape& prediction, Dtype dtype);
// Targets are class numbers, which index: they must be below this many. 0: they are not.
int64_t target_classes(const Loss& loss, const Shape& prediction);

// Numbers that belong to the whole batch and follow from its targets and weights alone. In a
// planned step they are inputs, filled in before it runs, so that the batch may be split; where
// they are undefined they are computed from the operands.
struct BatchFacts {
  Tensor factor;  // (): 1 / what the sum of values is divided by, 0 where that is 0
  Tensor binary;  // (): 1 when all targets are 0 or 1
};
// Which of them a loss with these weights reads.
bool needs_factor(const Loss& loss, bool weighted);
bool needs_binary(const Loss& loss);

struct LossResult {
  Tensor values;  // (B, ...) or ()
  Tensor scores;  // (B, ..., C): probabilities that came with them, or undefined
  Tensor mask;    // like values, 0 where a value does not count; undefined: all count
};

// Leaves out what a mask of the predictions (boolean (B, ...), of the values' first dimensions)
// leaves out, as Keras does: a mean is one of the values that count.
void apply_mask(LossResult& result, const Tensor& mask);

// Predictions that come straight out of a softmax or sigmoid are taken before it, as Keras does, so
// that the loss is exact where probabilities would underflow.
LossResult loss_values(const Loss& loss, const Tensor& y_true, const Tensor& y_pred,
                       const Tensor& binary = {});
Tensor reduce_loss(const Loss& loss, const LossResult& result, const Tensor& sample_weight = {},
                   const Tensor& factor = {});

// values (B, ...) times weights (B, ...) of the same or a lower rank: one for each sample, or one
// for each of its first positions. Keras's rule for a last dimension of 1.
Tensor times_weights(const Tensor& values, const Tensor& weights);
// (B, ...) to (B,): the mean over a sample's positions.
Tensor mean_of_positions(const Tensor& x);

}  // namespace pl
