// Metrics made of sums for each class: F-scores, R2 and intersection over union.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/number_text.h"
#include "model/loss_formulas.h"
#include "model/metric_counts.h"
#include "op/functions.h"

namespace pl::metrics {
namespace {

using formula::constant;
using formula::kEpsilon;
using formula::targets_like;

void expect_matrix(const char* metric, const Tensor& y_pred) {
  if (y_pred.shape().rank() != 2)
    throw UserError("[compile] " + std::string(metric) +
                    ": expected predictions (batch, outputs), received " + y_pred.meta().text());
}

// (B, C) to (C,), with weights (B,) if there are some.
Tensor class_sums(const Tensor& x, const Tensor& weight) {
  return reduce_sum(weight.defined() ? times_weights(x, weight) : x, {0});
}

// The totals as C numbers each.
struct PerClass {
  std::span<const double> state;
  size_t vectors;
  size_t classes() const { return (state.size() - 1) / vectors; }
  double at(size_t vector, size_t c) const { return state[1 + vector * classes() + c]; }
};

double f_score(double tp, double fp, double fn, double beta) {
  const double precision = tp / (tp + fp + kEpsilon), recall = tp / (tp + fn + kEpsilon);
  const double square = beta * beta;
  return precision * recall / (square * precision + recall + kEpsilon) * (1 + square);
}

}  // namespace

Metric FBetaScore(const FBetaScoreOptions& o) {
  if (!o.average.empty() && o.average != "micro" && o.average != "macro" && o.average != "weighted")
    throw UserError("[FBetaScore] average: expected micro, macro, weighted or none, received '" +
                    o.average + "'");
  if (!(o.beta > 0))
    throw UserError("[FBetaScore] beta: expected a positive number, received " +
                    number_text(o.beta));
  Metric metric(
      o.name,
      [o](const Tensor& y_true, const Tensor& p, const Tensor& weight) -> Tensors {
        expect_matrix("f1_score", p);
        const Tensor y = targets_like(y_true, p);
        constexpr double kZero = 1e-9;  // a row of zeros chooses nothing
        const Tensor chosen = o.threshold
                                  ? greater_mask(p, constant(*o.threshold, p))
                                  : multiply(greater_equal_mask(p, reduce_max(p, {-1}, true)),
                                             greater_mask(abs(p), constant(kZero, p)));
        return {class_sums(multiply(chosen, y), weight),
                class_sums(multiply(chosen, scale(y, -1, 1)), weight),
                class_sums(multiply(scale(chosen, -1, 1), y), weight), class_sums(y, weight)};
      },
      [o](std::span<const double> state) {
        const PerClass totals{state, 4};
        const size_t classes = totals.classes();
        double sum = 0, tp = 0, fp = 0, fn = 0, weights = 0;
        for (size_t c = 0; c < classes; ++c) {
          const double score = f_score(totals.at(0, c), totals.at(1, c), totals.at(2, c), o.beta);
          sum += score * (o.average == "weighted" ? totals.at(3, c) : 1);
          tp += totals.at(0, c);
          fp += totals.at(1, c);
          fn += totals.at(2, c);
          weights += totals.at(3, c);
        }
        if (o.average == "micro") return f_score(tp, fp, fn, o.beta);
        return o.average == "weighted" ? sum / (weights + kEpsilon)
                                       : sum / static_cast<double>(classes);
      });
  if (o.average.empty())
    metric.results = [beta = o.beta](std::span<const double> state) {
      const PerClass totals{state, 4};
      std::vector<double> scores;
      for (size_t c = 0; c < totals.classes(); ++c)
        scores.push_back(f_score(totals.at(0, c), totals.at(1, c), totals.at(2, c), beta));
      return scores;
    };
  return metric;
}

Metric F1Score(const F1ScoreOptions& o) {
  return FBetaScore({.average = o.average, .beta = 1, .threshold = o.threshold, .name = o.name});
}

Metric R2Score(const R2ScoreOptions& o) {
  if (o.class_aggregation != "uniform_average" &&
      o.class_aggregation != "variance_weighted_average")
    throw UserError(
        "[R2Score] class_aggregation: expected uniform_average or "
        "variance_weighted_average, received '" +
        o.class_aggregation + "'");
  return Metric(
      o.name,
      [](const Tensor& y_true, const Tensor& p, const Tensor& weight) -> Tensors {
        const Tensor y = targets_like(y_true, p);
        expect_matrix("r2_score", p);
        return {class_sums(y, weight), class_sums(square(y), weight),
                class_sums(square(subtract(y, p)), weight), class_sums(scale(y, 0, 1), weight)};
      },
      [o](std::span<const double> state) {
        const PerClass totals{state, 4};
        const size_t classes = totals.classes();
        double scores = 0, weighted = 0, spread = 0;
        for (size_t c = 0; c < classes; ++c) {
          const double sum = totals.at(0, c);
          const double total = totals.at(1, c) - sum * (sum / totals.at(3, c));
          const double raw = 1 - totals.at(2, c) / total;
          const double score = std::isinf(raw) ? 0 : raw;
          scores += score;
          weighted += total * score;
          spread += total;
        }
        double score = o.class_aggregation == "uniform_average"
                           ? scores / static_cast<double>(classes)
                           : weighted / spread;
        // Keras counts numbers, not samples.
        const double n = state[0] * static_cast<double>(classes);
        const auto regressors = static_cast<double>(o.num_regressors);
        if (regressors != 0 && regressors < n - 1)
          score = 1 - (1 - score) * (n - 1) / (n - regressors - 1);
        return score;
      });
}

namespace {

// Rows (..., C) with a 1 at the class: of labels, or of the first largest of a row of scores.
Tensor class_rows(const Tensor& x, bool sparse, int64_t classes, Dtype dtype) {
  if (!sparse) return first_largest(cast(x, dtype));
  return one_hot(cast(x, Dtype::int32), classes, dtype);
}

// Flattened to (N, C).
Tensor flat_rows(const Tensor& rows) {
  const Dim classes = rows.shape().back();
  return reshape(rows, {rows.meta().elements() / classes, classes});
}

Metric iou(std::string name, int64_t classes, std::vector<int64_t> targets,
           const IoUOptions& options, std::optional<double> threshold) {
  for (int64_t target : targets)
    if (target < 0 || target >= classes)
      throw UserError("[" + name + "] target_class_ids: expected classes from 0 to " +
                      std::to_string(classes - 1) + ", received " + std::to_string(target));
  return Metric(
      std::move(name),
      [=](const Tensor& y_true, const Tensor& y_pred, const Tensor& weight) -> Tensors {
        const Dtype dtype = is_floating(y_pred.dtype()) ? y_pred.dtype() : Dtype::float32;
        const Tensor p =
            threshold ? greater_equal_mask(y_pred, constant(*threshold, y_pred)) : y_pred;
        Tensor right = class_rows(y_true, options.sparse_y_true, classes, dtype);
        if (options.ignore_class && *options.ignore_class >= 0 && *options.ignore_class < classes) {
          // What is of that class counts nowhere.
          const Tensor ignored = slice(right, -1, *options.ignore_class, 1);
          right = multiply(right, scale(ignored, -1, 1));
        }
        if (weight.defined()) right = times_weights(right, weight);
        const Tensor predicted = class_rows(p, options.sparse_y_pred, classes, dtype);
        // (C, C): right class by predicted one.
        return {matmul(flat_rows(right), flat_rows(predicted), {.transpose_a = true})};
      },
      [=](std::span<const double> state) {
        const auto n = static_cast<size_t>(classes);
        auto cell = [&](size_t y, size_t p) { return state[1 + y * n + p]; };
        double sum = 0, valid = 0;
        for (int64_t target : targets) {
          const auto c = static_cast<size_t>(target);
          double all = -cell(c, c);
          for (size_t other = 0; other < n; ++other) all += cell(c, other) + cell(other, c);
          if (!(all > 1e-9)) continue;
          valid += 1;
          sum += cell(c, c) / (all + kEpsilon);
        }
        return sum / (valid + kEpsilon);
      });
}

std::vector<int64_t> all_classes(int64_t count) {
  std::vector<int64_t> list;
  for (int64_t c = 0; c < count; ++c) list.push_back(c);
  return list;
}

std::string or_name(const std::string& given, const char* otherwise) {
  return given.empty() ? otherwise : given;
}

}  // namespace

Metric IoU(int64_t num_classes, std::vector<int64_t> target_class_ids, const IoUOptions& options) {
  return iou(or_name(options.name, "io_u"), num_classes, std::move(target_class_ids), options, {});
}
Metric MeanIoU(int64_t num_classes, const IoUOptions& options) {
  return iou(or_name(options.name, "mean_io_u"), num_classes, all_classes(num_classes), options,
             {});
}
Metric OneHotIoU(int64_t num_classes, std::vector<int64_t> target_class_ids, IoUOptions options) {
  options.sparse_y_true = false;
  return iou(or_name(options.name, "one_hot_io_u"), num_classes, std::move(target_class_ids),
             options, {});
}
Metric OneHotMeanIoU(int64_t num_classes, IoUOptions options) {
  options.sparse_y_true = false;
  return iou(or_name(options.name, "one_hot_mean_io_u"), num_classes, all_classes(num_classes),
             options, {});
}
Metric BinaryIoU(std::vector<int64_t> target_class_ids, double threshold, std::string name) {
  return iou(std::move(name), 2, std::move(target_class_ids), {}, threshold);
}

}  // namespace pl::metrics
