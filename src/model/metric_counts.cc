// Metrics that count positives and negatives at thresholds.
#include "model/metric_counts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/number_text.h"
#include "model/loss_formulas.h"
#include "op/functions.h"

namespace pl::metrics {
namespace {

using formula::constant;
using formula::targets_like;

// Targets as 0 and 1, predictions, and weights, all of one shape.
struct Counted {
  Tensor positive, p, weight;  // the weight may be undefined
};

// Below every score, and what Keras puts in place of one that does not count.
constexpr double kNever = -1e10;

// Scores outside the k largest of their row become kNever; of equal ones the first counts.
Tensor keep_top_k(const Tensor& scores, int64_t k) {
  if (scores.shape().rank() < 2 || k < 1 || k > scores.shape().back())
    throw UserError("[compile] top_k: expected a number of classes of predictions " +
                    scores.meta().text() + ", received " + std::to_string(k));
  Tensor left = scores, kept;
  for (int64_t i = 0; i < k; ++i) {
    const Tensor next = first_largest(left);
    kept = kept.defined() ? add(kept, next) : next;
    if (i + 1 < k) left = add(left, scale(next, 2 * kNever));
  }
  return add(multiply(scores, kept), scale(kept, -kNever, kNever));
}

Counted counted(const Tensor& y_true, const Tensor& y_pred, const Tensor& weight,
                std::optional<int64_t> class_id, std::optional<int64_t> top_k = {}) {
  Counted result;
  result.p = top_k ? keep_top_k(y_pred, *top_k) : y_pred;
  Tensor y = targets_like(y_true, y_pred);
  if (class_id) {
    if (y_pred.shape().rank() < 2 || *class_id < 0 || *class_id >= y_pred.shape().back())
      throw UserError("[compile] class_id: expected a class of predictions " +
                      y_pred.meta().text() + ", received " + std::to_string(*class_id));
    y = slice(y, -1, *class_id, 1);
    result.p = slice(result.p, -1, *class_id, 1);
  }
  result.positive = scale(equal_mask(y, constant(0, y)), -1, 1);
  if (weight.defined()) {
    const Tensor ones = scale(result.positive, 0, 1);
    result.weight = times_weights(ones, weight);
  }
  return result;
}

Tensor weighted_sum(const Tensor& x, const Counted& of) {
  return reduce_sum(of.weight.defined() ? multiply(x, of.weight) : x);
}

enum class Count : uint8_t { tp, fp, tn, fn };

Tensor count_at(const Counted& of, double threshold, Count kind) {
  const Tensor above = greater_mask(of.p, constant(threshold, of.p));
  const bool positive = kind == Count::tp || kind == Count::fn;
  const bool predicted = kind == Count::tp || kind == Count::fp;
  return weighted_sum(multiply(positive ? of.positive : scale(of.positive, -1, 1),
                               predicted ? above : scale(above, -1, 1)),
                      of);
}

void check_threshold(const char* metric, double threshold) {
  if (!(threshold >= 0 && threshold <= 1))
    throw UserError("[" + std::string(metric) + "] threshold: expected a number from 0 to 1, " +
                    "received " + number_text(threshold));
}

Metric counts(const PrecisionOptions& options, const char* name, std::vector<Count> kinds,
              Metric::Result result) {
  if (options.threshold) check_threshold(name, *options.threshold);
  for (double threshold : options.thresholds) check_threshold(name, threshold);
  std::vector<double> thresholds = options.thresholds;
  if (thresholds.empty())
    thresholds.push_back(options.threshold.value_or(options.top_k ? kNever : 0.5));
  Metric metric(
      options.name.empty() ? name : options.name,
      [=](const Tensor& y, const Tensor& p, const Tensor& weight) {
        const Counted of = counted(y, p, weight, options.class_id, options.top_k);
        Tensors sums;
        for (double threshold : thresholds)
          for (Count kind : kinds) sums.push_back(count_at(of, threshold, kind));
        return sums;
      },
      result);
  if (thresholds.size() == 1) return metric;
  metric.results = [result, each = kinds.size()](std::span<const double> state) {
    std::vector<double> list;
    for (size_t first = 1; first < state.size(); first += each) {
      std::vector<double> one{state[0]};
      for (size_t k = 0; k < each; ++k) one.push_back(state[first + k]);
      list.push_back(result(one));
    }
    return list;
  };
  metric.result = mean_of(metric.results);
  return metric;
}

Metric one_count(const ThresholdOptions& options, const char* name, Count kind) {
  return counts({options.threshold, {}, options.class_id, options.name, options.thresholds}, name,
                {kind}, [](std::span<const double> state) { return state[1]; });
}

double share(std::span<const double> state) { return divide_no_nan(state[1], state[1] + state[2]); }

// ---- thresholds in equal steps from 0 to 1

// Weights of positives and of negatives in `count` buckets: bucket i has predictions above
// threshold i and not above the next. `lowest`: a prediction of 0 is in the first.
Tensors buckets(const Counted& of, int64_t count, bool lowest) {
  const Tensor clipped = formula::clip(of.p, 0, 1);
  const Tensor scaled = scale(clipped, static_cast<double>(count - 1));
  // ceil(x) - 1
  const Tensor whole = cast(cast(scaled, Dtype::int32), scaled.dtype());
  Tensor bucket = scale(add(whole, greater_mask(scaled, whole)), 1, -1);
  if (lowest) bucket = maximum(bucket, constant(0, bucket));
  const Dim elements = bucket.meta().elements();
  const Tensor rows = one_hot(cast(bucket, Dtype::int32), count, of.p.dtype());
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis + 1 < rows.shape().rank(); ++axis) axes.push_back(axis);
  check(elements * count == rows.meta().elements(), "a bucket for each prediction");
  auto sum = [&](const Tensor& which) {
    std::vector<Dim> dims = which.shape().dims();
    dims.push_back(1);
    const Tensor by = of.weight.defined() ? multiply(which, of.weight) : which;
    return reduce_sum(multiply(rows, reshape(by, std::move(dims))), axes);
  };
  return {sum(of.positive), sum(scale(of.positive, -1, 1))};
}

// tp, fp, tn and fn at the thresholds, from the buckets' totals.
class Curve {
 public:
  explicit Curve(std::span<const double> totals)
      : count_(totals.size() / 2), true_(totals.data()), false_(totals.data() + count_) {
    for (size_t i = 0; i < count_; ++i) {
      all_true_ += true_[i];
      all_false_ += false_[i];
    }
  }
  size_t size() const { return count_; }
  struct Point {
    double tp, fp, tn, fn;
  };
  // Calls visit(point, the point at the threshold before it) from the last threshold to the first.
  template <class Visit>
  void backwards(const Visit& visit) const {
    Point point{0, 0, all_false_, all_true_};
    for (size_t i = count_; i-- > 0;) {
      const Point above = point;
      point = {above.tp + true_[i], above.fp + false_[i], 0, 0};
      point.tn = all_false_ - point.fp;
      point.fn = all_true_ - point.tp;
      visit(i, point, above);
    }
  }

 private:
  size_t count_;
  const double *true_, *false_;
  double all_true_ = 0, all_false_ = 0;
};

using Rate = double (*)(const Curve::Point&);
double sensitivity_of(const Curve::Point& p) { return divide_no_nan(p.tp, p.tp + p.fn); }
double specificity_of(const Curve::Point& p) { return divide_no_nan(p.tn, p.tn + p.fp); }
double precision_of(const Curve::Point& p) { return divide_no_nan(p.tp, p.tp + p.fp); }

// The most of `wanted` where `constrained` is at least `value`.
Metric at_least(const char* name, double value, const CurveOptions& options, Rate constrained,
                Rate wanted) {
  check_threshold(name, value);
  if (options.num_thresholds < 1)
    throw UserError("[" + std::string(name) + "] num_thresholds: expected at least 1, received " +
                    std::to_string(options.num_thresholds));
  const int64_t thresholds = options.num_thresholds;
  return Metric(
      options.name.empty() ? name : options.name,
      [=](const Tensor& y, const Tensor& p, const Tensor& weight) -> Tensors {
        const Counted of = counted(y, p, weight, options.class_id);
        if (thresholds > 1) {
          Tensors sums = buckets(of, thresholds, false);
          // Not above the first threshold, so in no bucket: they are negatives all the same.
          sums.push_back(weighted_sum(of.positive, of));
          sums.push_back(weighted_sum(scale(of.positive, -1, 1), of));
          return sums;
        }
        return {count_at(of, 0.5, Count::tp), count_at(of, 0.5, Count::fp),
                count_at(of, 0.5, Count::tn), count_at(of, 0.5, Count::fn)};
      },
      [=](std::span<const double> state) {
        double most = 0;
        auto look = [&](const Curve::Point& point) {
          if (constrained(point) >= value) most = std::max(most, wanted(point));
        };
        if (thresholds == 1) {
          look({state[1], state[2], state[3], state[4]});
          return most;
        }
        const auto n = static_cast<size_t>(thresholds);
        const double all_true = state[1 + 2 * n], all_false = state[2 + 2 * n];
        Curve(state.subspan(1, 2 * n))
            .backwards([&](size_t, Curve::Point point, const Curve::Point&) {
              point.fn = all_true - point.tp;
              point.tn = all_false - point.fp;
              look(point);
            });
        return most;
      });
}

// ---- area under a curve

enum class CurveKind : uint8_t { roc, pr, prgain };
enum class Summation : uint8_t { interpolation, minoring, majoring };

template <class T>
T choose(const char* what, const std::string& name, const std::map<std::string, T>& choices) {
  std::string lower;
  for (char c : name) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const auto at = choices.find(lower);
  if (at != choices.end()) return at->second;
  std::string known;
  for (const auto& [choice, value] : choices) known += (known.empty() ? "" : ", ") + choice;
  throw UserError("[AUC] " + std::string(what) + ": expected one of " + known + ", received '" +
                  name + "'");
}

struct XY {
  double x, y;
};
XY place(const Curve::Point& p, CurveKind kind) {
  switch (kind) {
    case CurveKind::roc:
      return {divide_no_nan(p.fp, p.fp + p.tn), sensitivity_of(p)};
    case CurveKind::pr:
      return {sensitivity_of(p), precision_of(p)};
    default:
      break;
  }
  if (p.tp == 0) return {0, 1};
  const double factor = divide_no_nan(p.tp + p.fn, p.tn + p.fp);
  return {std::max(0.0, 1 - factor * p.fn / p.tp), 1 - factor * p.fp / p.tp};
}

// One term of the interpolated area under precision and recall (Davis and Goadrich).
double pr_term(const Curve::Point& at, const Curve::Point& next) {
  const double dtp = at.tp - next.tp, p = at.tp + at.fp, p_next = next.tp + next.fp;
  const double slope = divide_no_nan(dtp, std::max(p - p_next, 0.0));
  const double intercept = next.tp - slope * p_next;
  const double ratio = p > 0 && p_next > 0 ? p / p_next : 1;
  return divide_no_nan(slope * (dtp + intercept * std::log(ratio)),
                       std::max(next.tp + next.fn, 0.0));
}

double area(const Curve& curve, CurveKind kind, Summation summation) {
  double sum = 0;
  curve.backwards([&](size_t i, const Curve::Point& point, const Curve::Point& above) {
    if (i + 1 == curve.size()) return;  // the last threshold has none above it
    if (kind == CurveKind::pr && summation == Summation::interpolation) {
      sum += pr_term(point, above);
      return;
    }
    const XY a = place(point, kind), b = place(above, kind);
    const double height = summation == Summation::interpolation ? (a.y + b.y) / 2
                          : summation == Summation::minoring    ? std::min(a.y, b.y)
                                                                : std::max(a.y, b.y);
    sum += (a.x - b.x) * height;
  });
  return sum;
}

}  // namespace

Metric TruePositives(const ThresholdOptions& o) {
  return one_count(o, "true_positives", Count::tp);
}
Metric FalsePositives(const ThresholdOptions& o) {
  return one_count(o, "false_positives", Count::fp);
}
Metric TrueNegatives(const ThresholdOptions& o) {
  return one_count(o, "true_negatives", Count::tn);
}
Metric FalseNegatives(const ThresholdOptions& o) {
  return one_count(o, "false_negatives", Count::fn);
}
Metric Precision(const PrecisionOptions& o) {
  return counts(o, "precision", {Count::tp, Count::fp}, share);
}
Metric Recall(const PrecisionOptions& o) {
  return counts(o, "recall", {Count::tp, Count::fn}, share);
}

Metric SensitivityAtSpecificity(double specificity, const CurveOptions& o) {
  return at_least("sensitivity_at_specificity", specificity, o, specificity_of, sensitivity_of);
}
Metric SpecificityAtSensitivity(double sensitivity, const CurveOptions& o) {
  return at_least("specificity_at_sensitivity", sensitivity, o, sensitivity_of, specificity_of);
}
Metric PrecisionAtRecall(double recall, const CurveOptions& o) {
  return at_least("precision_at_recall", recall, o, sensitivity_of, precision_of);
}
Metric RecallAtPrecision(double precision, const CurveOptions& o) {
  return at_least("recall_at_precision", precision, o, precision_of, sensitivity_of);
}

Metric AUC(const AUCOptions& options) {
  if (options.num_thresholds < 2)
    throw UserError("[AUC] num_thresholds: expected at least 2, received " +
                    std::to_string(options.num_thresholds));
  const auto kind = choose<CurveKind>(
      "curve", options.curve,
      {{"roc", CurveKind::roc}, {"pr", CurveKind::pr}, {"prgain", CurveKind::prgain}});
  const auto summation = choose<Summation>("summation_method", options.summation_method,
                                           {{"interpolation", Summation::interpolation},
                                            {"minoring", Summation::minoring},
                                            {"majoring", Summation::majoring}});
  const auto weights = static_cast<int64_t>(options.label_weights.size());
  if (weights > 0 && !options.multi_label)
    throw UserError("[AUC] label_weights: expected multi_label with them, received none");
  const int64_t thresholds = options.num_thresholds;
  return Metric(
      options.name,
      [=](const Tensor& y, const Tensor& given, const Tensor& weight) {
        const Tensor p = options.from_logits ? sigmoid(given) : given;
        const Dim labels = p.shape().rank() > 1 ? p.shape().back() : 1;
        for (int64_t wanted : {options.num_labels, weights})
          if (options.multi_label && wanted > 0 && wanted != labels)
            throw UserError("[AUC] expected predictions of " + std::to_string(wanted) +
                            " labels, received " + p.meta().text());
        if (!options.multi_label)
          return buckets(counted(y, p, weight, std::nullopt), thresholds, true);
        Tensors sums;
        for (Dim label = 0; label < p.shape().back(); ++label)
          for (const Tensor& sum : buckets(counted(y, p, weight, label), thresholds, true))
            sums.push_back(sum);
        return sums;
      },
      [=](std::span<const double> state) {
        const size_t each = 2 * static_cast<size_t>(thresholds), labels = (state.size() - 1) / each;
        double sum = 0;
        double total = 0;
        for (size_t l = 0; l < labels; ++l) {
          const double share = options.label_weights.empty() ? 1 : options.label_weights[l];
          sum += share * area(Curve(state.subspan(1 + l * each, each)), kind, summation);
          total += share;
        }
        return divide_no_nan(sum, total);
      });
}

}  // namespace pl::metrics
