// Cross-entropies, as Keras computes them.
#include "base/error.h"
#include "model/loss_formulas.h"
#include "op/functions.h"
#include "op/observer.h"
#include "op/recorder.h"

namespace pl::formula {
namespace {

// The operand of the activation that made `y`, or undefined.
Tensor operand_of(const Tensor& y, const char* activation) {
  if (!y.is_symbol()) {
    for (const OpObserver* observer : observing())
      if (const Tensor operand = observer->operand_of(y, activation); operand.defined())
        return operand;
    return {};
  }
  const Graph& graph = y.recorder()->graph();
  const NodeId producer = graph.values[index(y.id())].producer;
  if (producer < 0 || graph.nodes[index(producer)].op != activation) return {};
  const ValueId in = graph.nodes[index(producer)].in[0];
  return Tensor(graph.values[index(in)].meta, y.recorder(), in);
}

Tensor logits_of(const Call& call, const char* activation) {
  const Tensor logits = call.loss.from_logits ? call.y_pred : operand_of(call.y_pred, activation);
  return logits.defined() ? widened(logits) : logits;
}

// The call with classes along the last axis.
Call with_last_axis(const Call& call, bool sparse) {
  const int rank = call.y_pred.shape().rank();
  if (rank < 2)
    throw UserError("[compile] " + call.loss.name +
                    ": expected predictions (batch, ..., classes), received " +
                    call.y_pred.meta().text());
  int64_t axis = call.loss.options.integer("axis", -1);
  if (axis < 0) axis += rank;
  if (axis < 1 || axis >= rank)
    throw UserError("[compile] " + call.loss.name + ": expected an axis of " +
                    call.y_pred.meta().text() + " behind the batch, received " +
                    std::to_string(axis));
  Call moved = call;
  if (axis == rank - 1) return moved;
  std::vector<int64_t> perm;
  for (int64_t a = 0; a < rank; ++a)
    if (a != axis) perm.push_back(a);
  perm.push_back(axis);
  moved.y_pred = transpose(call.y_pred, perm);
  if (!sparse) moved.y_true = transpose(call.y_true, perm);
  return moved;
}

// p / sum(p), clipped.
Tensor clean_probabilities(const Tensor& p) {
  return clip(divide(p, reduce_sum(p, {-1}, true)), kEpsilon, 1 - kEpsilon);
}

// -sum over classes of target * log(p), as Keras does for given probabilities.
Tensor of_probabilities(const Tensor& target, const Tensor& p) {
  return scale(reduce_sum(multiply(target, log(clean_probabilities(p))), {-1}), -1.0);
}

Tensor smoothed(const Call& call, const Tensor& target, double to) {
  const double smoothing = call.option("label_smoothing", 0);
  return smoothing == 0 ? target : scale(target, 1 - smoothing, smoothing * to);
}

// Labels (B, ...) without those to ignore, and where they count.
Tensor counted_labels(const Call& call, Dim classes, Tensor& mask, Dtype dtype) {
  const auto ignored = static_cast<double>(call.loss.options.integer("ignore_class"));
  const Tensor& y = call.y_true;
  auto number = [&](double value) { return fill(Shape{}, value, Dtype::int32); };
  const Tensor skip = equal_mask(y, number(ignored));
  mask = cast(subtract(number(1), skip), dtype);
  const Tensor kept = multiply(y, subtract(number(1), skip));
  return minimum(maximum(kept, number(0)), number(static_cast<double>(classes - 1)));
}

}  // namespace

LossResult sparse_categorical_crossentropy(const Call& given) {
  Call call = with_last_axis(given, true);
  const Dim classes = call.y_pred.shape().back();
  if (call.y_true.shape().rank() == call.y_pred.shape().rank()) {
    std::vector<Dim> dims = call.y_true.shape().dims();
    dims.pop_back();
    call.y_true = reshape(call.y_true, std::move(dims));
  }
  call.y_true = cast(call.y_true, Dtype::int32);
  LossResult result;
  if (call.loss.options.has("ignore_class"))
    call.y_true = counted_labels(call, classes, result.mask, wide(call.y_pred.dtype()));
  if (const Tensor logits = logits_of(call, "softmax"); logits.defined()) {
    auto [values, scores] = sparse_softmax_cross_entropy(logits, call.y_true);
    result.values = values;
    result.scores = scores;
    return result;
  }
  const Tensor p = widened(call.y_pred);
  const Tensor y = one_hot(call.y_true, classes, p.dtype());
  // A label out of range has a row of zeros: 0 / 0, which is seen, rather than a loss of 0.
  result.values = divide(of_probabilities(y, p), reduce_sum(y, {y.shape().rank() - 1}));
  result.scores = p;
  return result;
}

LossResult categorical_crossentropy(const Call& given) {
  const Call call = with_last_axis(given, false);
  const double classes = static_cast<double>(call.y_pred.shape().back());
  if (const Tensor logits = logits_of(call, "softmax"); logits.defined()) {
    const Tensor y = smoothed(call, targets_like(call.y_true, logits), 1 / classes);
    auto [values, scores] = softmax_cross_entropy(logits, y);
    return {values, scores, {}};
  }
  const Tensor p = widened(call.y_pred);
  const Tensor y = smoothed(call, targets_like(call.y_true, p), 1 / classes);
  return {of_probabilities(y, p), p, {}};
}

LossResult categorical_focal_crossentropy(const Call& given) {
  const Call call = with_last_axis(given, false);
  Tensor p = widened(call.y_pred);
  if (call.loss.from_logits) p = softmax(p);
  const double classes = static_cast<double>(p.shape().back());
  const Tensor y = smoothed(call, targets_like(call.y_true, p), 1 / classes);
  const Tensor clean = clean_probabilities(p);
  const Tensor focus =
      scale(power(scale(clean, -1, 1), call.option("gamma", 2)), -call.option("alpha", 0.25));
  return {reduce_sum(multiply(focus, multiply(y, log(clean))), {-1}), {}, {}};
}

LossResult categorical_generalized_cross_entropy(const Call& given) {
  const Call call = with_last_axis(given, true);
  const Tensor p = widened(call.y_pred);
  Tensor labels = cast(call.y_true, Dtype::int32);
  if (labels.shape().rank() == p.shape().rank()) {
    std::vector<Dim> dims = labels.shape().dims();
    dims.pop_back();
    labels = reshape(labels, std::move(dims));
  }
  const double q = call.option("q", 0.5);
  const Tensor right = reduce_sum(multiply(p, one_hot(labels, p.shape().back(), p.dtype())), {-1});
  return {scale(power(right, q), -1 / q, 1 / q), {}, {}};
}

LossResult binary_crossentropy(const Call& call) {
  // log(1 + e^x) - x * y
  if (const Tensor x = logits_of(call, "sigmoid"); x.defined()) {
    const Tensor y = smoothed(call, targets_like(call.y_true, x), 0.5);
    return {mean_of_last(subtract(softplus(x), multiply(x, y))), {}, {}};
  }
  const Tensor whole = widened(call.y_pred);
  const Tensor y = smoothed(call, targets_like(call.y_true, whole), 0.5);
  const Tensor p = clip(whole, kEpsilon, 1 - kEpsilon);
  const Tensor right = multiply(y, log(p)), wrong = multiply(scale(y, -1, 1), log(scale(p, -1, 1)));
  return {scale(mean_of_last(add(right, wrong)), -1), {}, {}};
}

LossResult binary_focal_crossentropy(const Call& call) {
  Tensor p = widened(call.y_pred);
  if (call.loss.from_logits) p = sigmoid(p);
  const Tensor y = smoothed(call, targets_like(call.y_true, p), 0.5);
  const Tensor clean = clip(p, kEpsilon, 1 - kEpsilon);
  const Tensor not_y = scale(y, -1, 1);
  Tensor values =
      add(multiply(y, log(clean)), multiply(not_y, log(scale(clean, -1, 1))));  // negative
  // 1 - p_t, with p_t = y p + (1 - y) (1 - p)
  const Tensor p_t = add(multiply(y, p), multiply(not_y, scale(p, -1, 1)));
  values = multiply(power(scale(p_t, -1, 1), call.option("gamma", 2)), values);
  if (call.loss.options.integer("apply_class_balancing", 0)) {
    const double alpha = call.option("alpha", 0.25);
    // y alpha + (1 - y) (1 - alpha)
    values = multiply(scale(y, 2 * alpha - 1, 1 - alpha), values);
  }
  return {scale(mean_of_last(values), -1), {}, {}};
}

LossResult ctc(const Call& call) {
  if (call.y_true.shape().rank() != 2 || call.y_pred.shape().rank() != 3)
    throw UserError(
        "[compile] ctc: expected labels (batch, length) and logits (batch, steps, classes), "
        "received " +
        call.y_true.meta().text() + " and " + call.y_pred.meta().text());
  return {ctc_loss(widened(call.y_pred), cast(call.y_true, Dtype::int32)), {}, {}};
}

}  // namespace pl::formula
