// Metrics with Keras's names and formulas. A metric is a few sums over samples that each step
// computes, and a function from their totals to a number; so splitting the batch changes nothing,
// and an epoch costs no memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

struct Metric {
  // Tensors without samples, each a sum over the batch; the weight is undefined, (B,) or (B, ...).
  using Sums =
      std::function<Tensors(const Tensor& y_true, const Tensor& y_pred, const Tensor& weight)>;
  // state[0]: samples so far; then the totals, in the order of the sums and their elements.
  using Result = std::function<double(std::span<const double> state)>;

  Metric() = default;
  Metric(const char* name);  // throws UserError listing the known metrics
  Metric(const std::string& name) : Metric(name.c_str()) {}
  Metric(std::string log_name, Sums batch_sums, Result from_totals)
      : name(std::move(log_name)), sums(std::move(batch_sums)), result(std::move(from_totals)) {}

  // The mean of what a function gives, Keras's MeanMetricWrapper.
  Metric(std::string log_name,
         std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)> values);

  std::string name;  // in logs
  Sums sums;
  Result result;
  // Of a metric with several numbers (thresholds, classes): all of them; a log has their mean.
  std::function<std::vector<double>(std::span<const double> state)> results = nullptr;
  bool ranks = false;   // only the order of scores counts: probabilities do for logits
  bool masked = false;  // a mask of the predictions counts as a weight, as in Keras's means
};
using MetricList = std::vector<Metric>;

// The mean of one number a sample (or position), Keras's MeanMetricWrapper.
using MetricFunction = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;
Metric mean_metric(std::string name, MetricFunction values);

// Keras's rule for weighted means: sums of weighted values, and of weights where there are some.
Tensors mean_sums(const Tensor& values, const Tensor& weight);
double mean_result(std::span<const double> state);

// Totals of a metric over batches, for use outside of a model.
class MetricState {
 public:
  explicit MetricState(Metric metric) : metric_(std::move(metric)), state_(1, 0.0) {}
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {});
  double result() const { return metric_.result(state_); }
  std::vector<double> results() const {  // of a metric with several numbers, or the one
    return metric_.results ? metric_.results(state_) : std::vector<double>{result()};
  }
  void reset_state() { state_.assign(1, 0.0); }

 private:
  Metric metric_;
  std::vector<double> state_;
};

}  // namespace pl
