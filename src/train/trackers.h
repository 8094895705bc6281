// metrics::Mean, metrics::Sum and metrics::Tracked: Keras's trackers of numbers that a train_step
// of one's own, or a loop of one's own, computes.
//
//   loss_tracker_.update_state(loss);
//   return {{"loss", total}, {"penalty", loss_tracker_.result()}};
#pragma once

#include <string>

#include "model/metric.h"

namespace pl {

namespace metrics {

// In a step the sums are the batch's, and the log has what all batches of the epoch make: result()
// belongs among the step's figures. On values they are totals until reset_state().
class Tracker {
 public:
  // Numbers of any shape; weights of their shape, or of one that broadcasts to it.
  void update_state(const Tensor& values, const Tensor& sample_weight = {});
  Tensor result() const;
  void reset_state();
  const std::string& name() const { return name_; }

 protected:
  Tracker(std::string name, bool mean) : name_(std::move(name)), mean_(mean) {}

 private:
  std::string name_;
  bool mean_;
  Tensor total_, count_;         // of this step
  int64_t step_ = 0;             // whose they are
  double sum_ = 0, weight_ = 0;  // on values
};

class Mean : public Tracker {
 public:
  explicit Mean(std::string name = "mean") : Tracker(std::move(name), true) {}
};
class Sum : public Tracker {
 public:
  explicit Sum(std::string name = "sum") : Tracker(std::move(name), false) {}
};

// Any metric as a tracker: metrics::Tracked mae_{metrics::MeanAbsoluteError()}. In a step result()
// stands for it among the figures, and the log has what all batches of the epoch make; as a number
// it is of no use there.
class Tracked {
 public:
  explicit Tracked(Metric metric) : metric_(metric), values_(std::move(metric)) {}
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {});
  Tensor result() const;
  void reset_state();
  const std::string& name() const { return metric_.name; }

 private:
  Metric metric_;
  MetricState values_;  // on values
  Tensors sums_;        // of this step
  int64_t step_ = 0;    // whose they are
};

}  // namespace metrics
}  // namespace pl
