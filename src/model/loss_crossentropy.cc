// Cross-entropies, as Keras computes them.
#include "base/error.h"
#include "model/loss_formulas.h"
#include "op/functions.h"
#include "op/recorder.h"

namespace pl::formula {
namespace {

// The operand of the activation that made `y`, or undefined.
Tensor operand_of(const Tensor& y, const char* activation) {
  if (!y.is_symbol()) return {};
  const Graph& graph = y.recorder()->graph();
  const NodeId producer = graph.values[index(y.id())].producer;
  if (producer < 0 || graph.nodes[index(producer)].op != activation) return {};
  const ValueId in = graph.nodes[index(producer)].in[0];
  return Tensor(graph.values[index(in)].meta, y.recorder(), in);
}

Tensor logits_of(const Call& call) {
  const Tensor logits = call.loss.from_logits ? call.y_pred : operand_of(call.y_pred, "softmax");
  return logits.defined() ? widened(logits) : logits;
}

void expect_classes(const Call& call) {
  if (call.y_pred.shape().rank() < 2)
    throw UserError("[compile] " + call.loss.name +
                    ": expected predictions (batch, ..., classes), received " +
                    call.y_pred.meta().text());
}

// -sum over classes of target * log(clip(p / sum(p))), as Keras does for given probabilities.
Tensor of_probabilities(const Tensor& target, const Tensor& p) {
  const Dtype dtype = p.dtype();
  const Tensor normal = divide(p, reduce_sum(p, {-1}, true));
  const Tensor clipped =
      minimum(maximum(normal, fill(Shape{}, kEpsilon, dtype)), fill(Shape{}, 1 - kEpsilon, dtype));
  return scale(reduce_sum(multiply(target, log(clipped)), {-1}), -1.0);
}

}  // namespace

LossResult sparse_categorical_crossentropy(const Call& call) {
  expect_classes(call);
  if (const Tensor logits = logits_of(call); logits.defined()) {
    auto [values, scores] = sparse_softmax_cross_entropy(logits, call.y_true);
    return {values, scores, {}};
  }
  const Tensor p = widened(call.y_pred);
  return {of_probabilities(one_hot(call.y_true, p.shape().back(), p.dtype()), p), p, {}};
}

LossResult categorical_crossentropy(const Call& call) {
  expect_classes(call);
  if (const Tensor logits = logits_of(call); logits.defined()) {
    auto [values, scores] = softmax_cross_entropy(logits, targets_like(call.y_true, logits));
    return {values, scores, {}};
  }
  const Tensor p = widened(call.y_pred);
  return {of_probabilities(targets_like(call.y_true, p), p), p, {}};
}

}  // namespace pl::formula
