#include "model/loss.h"

#include "base/error.h"
#include "op/functions.h"
#include "op/recorder.h"

namespace pl {
namespace {

constexpr double kEpsilon = 1e-7;  // Keras clips probabilities by it

// The operand of the softmax that made `y`, or undefined.
Tensor logits_of(const Tensor& y) {
  if (!y.is_symbol()) return {};
  const Graph& graph = y.recorder()->graph();
  const NodeId producer = graph.values[static_cast<size_t>(y.id())].producer;
  if (producer < 0 || graph.nodes[static_cast<size_t>(producer)].op != "softmax") return {};
  const ValueId in = graph.nodes[static_cast<size_t>(producer)].in[0];
  return Tensor(graph.values[static_cast<size_t>(in)].meta, y.recorder(), in);
}

// Losses are computed in float32 whatever the layers compute in.
Tensor widened(const Tensor& x) { return x.defined() ? cast(x, wide(x.dtype())) : x; }

// -sum over classes of target * log(clip(p / sum(p))), as Keras does for given probabilities.
Tensor cross_entropy_of_probabilities(const Tensor& target, const Tensor& p) {
  const Dtype dtype = p.dtype();
  const Tensor normal = divide(p, reduce_sum(p, {-1}, true));
  const Tensor clipped =
      minimum(maximum(normal, fill(Shape{}, kEpsilon, dtype)), fill(Shape{}, 1 - kEpsilon, dtype));
  return scale(reduce_sum(multiply(target, log(clipped)), {-1}), -1.0);
}

// (B, ...) to (B,): the mean over a sample's positions.
Tensor mean_of_positions(const Tensor& x) {
  if (x.shape().rank() == 1) return x;
  std::vector<int64_t> axes;
  for (int64_t axis = 1; axis < x.shape().rank(); ++axis) axes.push_back(axis);
  return reduce_mean(x, std::move(axes));
}

LossResult sparse_crossentropy(const Loss& loss, const Tensor& y_true, const Tensor& y_pred) {
  const Tensor logits = widened(loss.from_logits ? y_pred : logits_of(y_pred));
  if (logits.defined()) {
    auto [loss_of_row, probs] = sparse_softmax_cross_entropy(logits, y_true);
    return {mean_of_positions(loss_of_row), probs};
  }
  const Tensor p = widened(y_pred);
  const Tensor targets = one_hot(y_true, p.shape().back(), p.dtype());
  return {mean_of_positions(cross_entropy_of_probabilities(targets, p)), p};
}

LossResult crossentropy(const Loss& loss, const Tensor& y_true, const Tensor& y_pred) {
  const Tensor logits = widened(loss.from_logits ? y_pred : logits_of(y_pred));
  if (logits.defined()) {
    auto [loss_of_row, probs] = softmax_cross_entropy(logits, y_true);
    return {mean_of_positions(loss_of_row), probs};
  }
  const Tensor p = widened(y_pred);
  return {mean_of_positions(cross_entropy_of_probabilities(y_true, p)), p};
}

LossResult squared_error(const Loss&, const Tensor& y_true, const Tensor& y_pred) {
  if (y_pred.shape().rank() > 2)
    return {mean_of_positions(square(subtract(y_pred, y_true))), y_pred};
  const Dim rows = y_pred.shape()[0];
  const int64_t width = y_pred.shape().without_front().elements();
  const Tensor prediction = widened(y_pred);
  const Tensor error = reshape(square(subtract(prediction, y_true)), {rows, width});
  return {scale(reduce_sum(error, {1}), 1.0 / static_cast<double>(width)), prediction};
}

struct Entry {
  const char* name;
  LossResult (*call)(const Loss&, const Tensor&, const Tensor&);
};
// The one list of losses.
constexpr Entry kLosses[] = {
    {"sparse_categorical_crossentropy", sparse_crossentropy},
    {"categorical_crossentropy", crossentropy},
    {"mean_squared_error", squared_error},
};

const Entry& find_loss(const std::string& name) {
  std::string known;
  for (const Entry& entry : kLosses) {
    if (name == entry.name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw UserError("[compile] loss: expected one of " + known + ", received '" + name + "'");
}

}  // namespace

Loss loss_from_name(const std::string& name) {
  const std::string full = name == "mse" ? "mean_squared_error" : name;
  find_loss(full);
  return {full};
}

Meta target_meta(const Loss& loss, const Shape& prediction, Dtype dtype) {
  if (loss.name == "sparse_categorical_crossentropy") {
    std::vector<Dim> dims = prediction.dims();
    if (!dims.empty()) dims.pop_back();  // compute_loss refuses predictions without classes
    return {Dtype::int32, Shape(std::move(dims))};
  }
  return {dtype, prediction};
}

LossResult compute_loss(const Loss& loss, const Tensor& y_true, const Tensor& y_pred) {
  if (loss.name != "mean_squared_error" && y_pred.shape().rank() < 2)
    throw UserError("[compile] " + loss.name +
                    ": expected predictions (batch, ..., classes), received " +
                    y_pred.meta().text());
  return find_loss(loss.name).call(loss, y_true, y_pred);
}

void check_metric(const std::string& metric) {
  if (metric != "accuracy" && metric != "acc")
    throw UserError("[compile] metrics: expected 'accuracy', received '" + metric + "'");
}

Tensor compute_metric(const std::string& metric, const Tensor& y_true, const Tensor& scores) {
  check_metric(metric);
  if (scores.shape().rank() < 2)
    throw UserError("[compile] accuracy: expected predictions (batch, ..., classes), received " +
                    scores.meta().text());
  return mean_of_positions(y_true.dtype() == Dtype::int32
                               ? sparse_categorical_accuracy(scores, y_true)
                               : categorical_accuracy(scores, y_true));
}

}  // namespace pl
