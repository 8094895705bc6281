#include "model/metric.h"

#include "base/error.h"
#include "model/loss.h"
#include "op/functions.h"

namespace pl {
namespace {

// Keras's choice for "accuracy": by the shapes of targets and predictions.
Tensor accuracy(const Tensor& y_true, const Tensor& y_pred) {
  if (y_pred.shape().rank() < 2)
    throw UserError("[compile] accuracy: expected predictions (batch, ..., classes), received " +
                    y_pred.meta().text());
  return y_true.dtype() == Dtype::int32 ? sparse_categorical_accuracy(y_pred, y_true)
                                        : categorical_accuracy(y_pred, y_true);
}

}  // namespace

Tensors mean_sums(const Tensor& values, const Tensor& weight) {
  if (!weight.defined()) {
    if (values.shape().rank() > 0) return {reduce_sum(mean_of_positions(values))};
    return {values, fill(Shape{}, 1, values.dtype())};  // one number for the whole batch
  }
  Tensor v = values;
  const int rank = weight.shape().rank();
  if (v.shape().rank() > rank) {
    std::vector<int64_t> axes;
    for (int64_t axis = rank; axis < v.shape().rank(); ++axis) axes.push_back(axis);
    v = reduce_mean(v, std::move(axes));
  }
  const Tensor weighted = times_weights(v, weight);
  return {reduce_sum(mean_of_positions(weighted)),
          reduce_sum(mean_of_positions(cast(weight, v.dtype())))};
}

double mean_result(std::span<const double> state) {
  const double count = state.size() > 2 ? state[2] : state[0];
  return count != 0 ? state[1] / count : 0;
}

Metric mean_metric(std::string name, MetricFunction values) {
  return Metric(
      std::move(name),
      [values = std::move(values)](const Tensor& y_true, const Tensor& y_pred,
                                   const Tensor& weight) {
        return mean_sums(values(y_true, y_pred), weight);
      },
      mean_result);
}

Metric::Metric(const char* given) {
  const std::string wanted = given ? given : "";
  if (wanted != "accuracy" && wanted != "acc")
    throw UserError("[compile] metrics: expected 'accuracy', received '" + wanted + "'");
  *this = mean_metric(wanted, accuracy);
  ranks = true;
}

void MetricState::update_state(const Tensor& y_true, const Tensor& y_pred,
                               const Tensor& sample_weight) {
  state_[0] += static_cast<double>(y_pred.shape()[0]);
  size_t at = 1;
  for (const Tensor& sum : metric_.sums(y_true, y_pred, sample_weight)) {
    const Tensor numbers = cast(sum, Dtype::float64);
    const auto count = static_cast<size_t>(numbers.meta().elements());
    state_.resize(std::max(state_.size(), at + count), 0.0);
    for (size_t i = 0; i < count; ++i) state_[at++] += numbers.data_as<double>()[i];
  }
}

}  // namespace pl
