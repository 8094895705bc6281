// Metrics that are means of one number a sample.
#include <cmath>

#include "base/error.h"
#include "model/loss_formulas.h"
#include "model/losses.h"
#include "model/metrics.h"
#include "op/functions.h"

namespace pl::metrics {
namespace {

using formula::constant;
using formula::targets_like;

// Labels (B, ...) of predictions (B, ..., C).
Tensor labels_of(const Tensor& y_true, const Tensor& y_pred) {
  Tensor labels = cast(y_true, Dtype::int32);
  if (labels.shape().rank() != y_pred.shape().rank()) return labels;
  std::vector<Dim> dims = labels.shape().dims();
  dims.pop_back();
  return reshape(labels, std::move(dims));
}

void expect_classes(const char* metric, const Tensor& y_pred) {
  if (y_pred.shape().rank() < 2)
    throw UserError("[compile] " + std::string(metric) +
                    ": expected predictions (batch, ..., classes), received " +
                    y_pred.meta().text());
}

// 1 where fewer than k classes score more than the right one, whose row of `right` is 1.
Tensor in_top_k(const Tensor& scores, const Tensor& right, int64_t k) {
  const Tensor score = reduce_sum(multiply(scores, right), {-1}, true);
  const Tensor better = reduce_sum(greater_mask(scores, score), {-1});
  return greater_mask(constant(static_cast<double>(k) - 0.5, better), better);
}

}  // namespace

// The first largest of each row as a row with a 1 there.
Tensor first_largest(const Tensor& x) {
  std::vector<Dim> dims = x.shape().dims();
  const Dim classes = dims.back();
  dims.pop_back();
  return one_hot(reshape(argsort(x, 1, true), std::move(dims)), classes, x.dtype());
}

Metric Accuracy(std::string name) {
  return mean_metric(std::move(name), [](const Tensor& y, const Tensor& p) {
    const Tensor equal = equal_mask(targets_like(y, p), p);
    return is_floating(equal.dtype()) ? equal : cast(equal, Dtype::float32);
  });
}

Metric BinaryAccuracy(double threshold, std::string name) {
  return mean_metric(std::move(name), [=](const Tensor& y, const Tensor& p) {
    return equal_mask(targets_like(y, p), greater_mask(p, constant(threshold, p)));
  });
}

Metric CategoricalAccuracy(std::string name) {
  Metric metric = mean_metric(std::move(name), [](const Tensor& y, const Tensor& p) {
    expect_classes("accuracy", p);
    return categorical_accuracy(p, targets_like(y, p));
  });
  metric.ranks = true;
  return metric;
}

Metric SparseCategoricalAccuracy(std::string name) {
  Metric metric = mean_metric(std::move(name), [](const Tensor& y, const Tensor& p) {
    expect_classes("accuracy", p);
    return sparse_categorical_accuracy(p, labels_of(y, p));
  });
  metric.ranks = true;
  return metric;
}

Metric TopKCategoricalAccuracy(int64_t k, std::string name) {
  Metric metric = mean_metric(std::move(name), [k](const Tensor& y, const Tensor& p) {
    expect_classes("top_k_categorical_accuracy", p);
    return in_top_k(p, first_largest(targets_like(y, p)), k);
  });
  metric.ranks = true;
  return metric;
}

Metric SparseTopKCategoricalAccuracy(int64_t k, std::string name) {
  Metric metric = mean_metric(std::move(name), [k](const Tensor& y, const Tensor& p) {
    expect_classes("sparse_top_k_categorical_accuracy", p);
    return in_top_k(p, one_hot(labels_of(y, p), p.shape().back(), p.dtype()), k);
  });
  metric.ranks = true;
  return metric;
}

Metric RootMeanSquaredError(std::string name) {
  Metric metric = mean_metric(std::move(name), [](const Tensor& y, const Tensor& p) {
    return square(subtract(p, targets_like(y, p)));
  });
  metric.result = [](std::span<const double> state) { return std::sqrt(mean_result(state)); };
  metric.masked = false;  // as in Keras, which takes the mean itself
  return metric;
}

Metric CosineSimilarity(int64_t axis, std::string name) {
  return mean_metric(std::move(name), [axis](const Tensor& y, const Tensor& p) {
    return reduce_sum(
        multiply(formula::normalized(targets_like(y, p), axis), formula::normalized(p, axis)),
        {axis});
  });
}

namespace {

Tensor centred(const Tensor& x, int64_t axis) { return subtract(x, reduce_mean(x, {axis}, true)); }

}  // namespace

Metric PearsonCorrelation(int64_t axis, std::string name) {
  return mean_metric(std::move(name), [axis](const Tensor& y, const Tensor& p) {
    auto standard = [axis](const Tensor& x) {
      const Tensor c = centred(x, axis);
      return divide(c, sqrt(reduce_mean(square(centred(c, axis)), {axis}, true)));
    };
    return reduce_mean(multiply(standard(targets_like(y, p)), standard(p)), {axis});
  });
}

// Keras's formula to the letter: both factors of the covariance are taken from the predictions'
// mean.
Metric ConcordanceCorrelation(int64_t axis, std::string name) {
  return mean_metric(std::move(name), [axis](const Tensor& y_true, const Tensor& p) {
    const Tensor y = targets_like(y_true, p);
    const Tensor y_mean = reduce_mean(y, {axis}, true), p_mean = reduce_mean(p, {axis}, true);
    auto variance = [axis](const Tensor& x) {
      return reduce_mean(square(centred(centred(x, axis), axis)), {axis}, true);
    };
    const Tensor covariance = multiply(subtract(y, p_mean), subtract(p, p_mean));
    const Tensor norm = add(add(variance(y), variance(p)), square(subtract(y_mean, p_mean)));
    return reduce_mean(divide(scale(covariance, 2), scale(norm, 1, formula::kEpsilon)), {axis});
  });
}

Metric of_loss(const Loss& loss, std::string name) {
  check_loss(loss);
  return mean_metric(
      name.empty() ? loss.name : std::move(name), [loss](const Tensor& y, const Tensor& p) {
        const LossResult result = loss_values(loss, y, p);
        return result.mask.defined() ? multiply(result.values, result.mask) : result.values;
      });
}

Metric MeanSquaredError(std::string name) {
  return of_loss(losses::MeanSquaredError(), std::move(name));
}
Metric MeanAbsoluteError(std::string name) {
  return of_loss(losses::MeanAbsoluteError(), std::move(name));
}
Metric MeanAbsolutePercentageError(std::string name) {
  return of_loss(losses::MeanAbsolutePercentageError(), std::move(name));
}
Metric MeanSquaredLogarithmicError(std::string name) {
  return of_loss(losses::MeanSquaredLogarithmicError(), std::move(name));
}
Metric LogCoshError(std::string name) { return of_loss(losses::LogCosh(), std::move(name)); }
Metric KLDivergence(std::string name) { return of_loss(losses::KLDivergence(), std::move(name)); }
Metric Poisson(std::string name) { return of_loss(losses::Poisson(), std::move(name)); }
Metric Hinge(std::string name) { return of_loss(losses::Hinge(), std::move(name)); }
Metric SquaredHinge(std::string name) { return of_loss(losses::SquaredHinge(), std::move(name)); }
Metric CategoricalHinge(std::string name) {
  return of_loss(losses::CategoricalHinge(), std::move(name));
}
Metric BinaryCrossentropy(bool from_logits, std::string name) {
  return of_loss(losses::BinaryCrossentropy({.from_logits = from_logits}), std::move(name));
}
Metric CategoricalCrossentropy(bool from_logits, std::string name) {
  return of_loss(losses::CategoricalCrossentropy({.from_logits = from_logits}), std::move(name));
}
Metric SparseCategoricalCrossentropy(bool from_logits, std::string name) {
  return of_loss(losses::SparseCategoricalCrossentropy({.from_logits = from_logits}),
                 std::move(name));
}

}  // namespace pl::metrics
