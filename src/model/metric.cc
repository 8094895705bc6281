#include "model/metric.h"

#include <algorithm>

#include "base/error.h"
#include "model/losses.h"
#include "model/metrics.h"
#include "op/functions.h"

namespace pl {

Tensors mean_sums(const Tensor& values, const Tensor& weight) {
  if (!weight.defined()) {
    if (values.shape().rank() > 0) return {reduce_sum(mean_of_positions(values))};
    return {values, fill(Shape{}, 1, values.dtype())};  // one number for the whole batch
  }
  // In the wider of both: accuracies are float32 whatever the predictions are.
  const bool widen = size_of(weight.dtype()) > size_of(values.dtype());
  Tensor v = widen ? cast(values, weight.dtype()) : values, w = cast(weight, v.dtype());
  // Keras: a last dimension of 1 is dropped or added where the ranks differ by it.
  if (w.shape().rank() == v.shape().rank() + 1 && w.shape().back() == 1)
    w = reshape(w, v.shape().dims());
  const int rank = w.shape().rank();
  if (v.shape().rank() > rank) {
    std::vector<int64_t> axes;
    for (int64_t axis = rank; axis < v.shape().rank(); ++axis) axes.push_back(axis);
    v = reduce_mean(v, std::move(axes));
  }
  // Weights (B, 1) hold for all positions, and their mean is theirs.
  return {reduce_sum(mean_of_positions(multiply(v, w))), reduce_sum(mean_of_positions(w))};
}

double mean_result(std::span<const double> state) {
  const double count = state.size() > 2 ? state[2] : state[0];
  return count != 0 ? state[1] / count : 0;
}

Metric mean_metric(std::string name, MetricFunction values) {
  Metric metric(
      std::move(name),
      [values = std::move(values)](const Tensor& y_true, const Tensor& y_pred,
                                   const Tensor& weight) {
        return mean_sums(values(y_true, y_pred), weight);
      },
      mean_result);
  metric.masked = true;
  return metric;
}

Metric::Metric(std::string log_name, MetricFunction values)
    : Metric(mean_metric(std::move(log_name), std::move(values))) {}

namespace {

// Keras's choice for "accuracy": by the shapes of targets and predictions.
Metric accuracy(const std::string& name) {
  const Metric binary = metrics::BinaryAccuracy(), sparse = metrics::SparseCategoricalAccuracy(),
               dense = metrics::CategoricalAccuracy();
  Metric metric(
      name,
      [=](const Tensor& y_true, const Tensor& y_pred, const Tensor& weight) {
        const Shape &y = y_true.shape(), &p = y_pred.shape();
        const bool one_number = p.rank() < 2 || p.back() == 1;
        const bool labels = y.rank() < p.rank() || (y.back() == 1 && p.back() > 1);
        return (one_number ? binary : labels ? sparse : dense).sums(y_true, y_pred, weight);
      },
      mean_result);
  metric.ranks = metric.masked = true;
  return metric;
}

struct Entry {
  const char* name;
  const char* short_name;
  Metric (*make)();
};
template <Loss (*loss)(const losses::Options&)>
Metric from_loss() {
  return metrics::of_loss(loss({}));
}
// The one list of metrics known by name.
constexpr Entry kMetrics[] = {
    {"binary_accuracy", "", [] { return metrics::BinaryAccuracy(); }},
    {"categorical_accuracy", "", [] { return metrics::CategoricalAccuracy(); }},
    {"sparse_categorical_accuracy", "", [] { return metrics::SparseCategoricalAccuracy(); }},
    {"top_k_categorical_accuracy", "", [] { return metrics::TopKCategoricalAccuracy(); }},
    {"sparse_top_k_categorical_accuracy", "",
     [] { return metrics::SparseTopKCategoricalAccuracy(); }},
    {"mean_squared_error", "mse", from_loss<losses::MeanSquaredError>},
    {"root_mean_squared_error", "", [] { return metrics::RootMeanSquaredError(); }},
    {"mean_absolute_error", "mae", from_loss<losses::MeanAbsoluteError>},
    {"mean_absolute_percentage_error", "mape", from_loss<losses::MeanAbsolutePercentageError>},
    {"mean_squared_logarithmic_error", "msle", from_loss<losses::MeanSquaredLogarithmicError>},
    {"cosine_similarity", "", [] { return metrics::CosineSimilarity(); }},
    {"log_cosh_error", "logcosh", from_loss<losses::LogCosh>},
    {"r2_score", "", [] { return metrics::R2Score(); }},
    {"pearson_correlation", "", [] { return metrics::PearsonCorrelation(); }},
    {"concordance_correlation", "", [] { return metrics::ConcordanceCorrelation(); }},
    {"hinge", "", from_loss<losses::Hinge>},
    {"squared_hinge", "", from_loss<losses::SquaredHinge>},
    {"categorical_hinge", "", from_loss<losses::CategoricalHinge>},
    {"kl_divergence", "", from_loss<losses::KLDivergence>},
    {"poisson", "", from_loss<losses::Poisson>},
    {"binary_crossentropy", "bce", [] { return metrics::of_loss(losses::BinaryCrossentropy()); }},
    {"categorical_crossentropy", "",
     [] { return metrics::of_loss(losses::CategoricalCrossentropy()); }},
    {"sparse_categorical_crossentropy", "",
     [] { return metrics::of_loss(losses::SparseCategoricalCrossentropy()); }},
    {"true_positives", "", [] { return metrics::TruePositives(); }},
    {"false_positives", "", [] { return metrics::FalsePositives(); }},
    {"true_negatives", "", [] { return metrics::TrueNegatives(); }},
    {"false_negatives", "", [] { return metrics::FalseNegatives(); }},
    {"precision", "", [] { return metrics::Precision(); }},
    {"recall", "", [] { return metrics::Recall(); }},
    {"auc", "", [] { return metrics::AUC(); }},
    {"f1_score", "", [] { return metrics::F1Score(); }},
    {"fbeta_score", "", [] { return metrics::FBetaScore(); }},
    {"binary_io_u", "", [] { return metrics::BinaryIoU(); }},
};

// Without underscores and capitals: Keras takes AUC and auc, MeanSquaredError and
// mean_squared_error.
std::string plain(std::string_view text) {
  std::string out;
  for (char c : text)
    if (c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

}  // namespace

Metric::Metric(const char* given) {
  const std::string wanted = given ? given : "";
  if (wanted == "accuracy" || wanted == "acc") {
    *this = accuracy(wanted);
    return;
  }
  std::string known = "accuracy";
  for (const Entry& entry : kMetrics) {
    const bool same = plain(wanted) == plain(entry.name) ||
                      (*entry.short_name && plain(wanted) == entry.short_name);
    if (same) {
      *this = entry.make();
      name = wanted;
      return;
    }
    known += std::string(", ") + entry.name;
  }
  throw UserError("[compile] metrics: expected one of " + known + ", received '" + wanted + "'");
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
