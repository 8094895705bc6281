#include "train/trackers.h"

#include "base/error.h"
#include "op/ops.h"
#include "op/recorder.h"
#include "train/step_scope.h"

namespace pl::metrics {

void Tracker::update_state(const Tensor& values, const Tensor& sample_weight) {
  if (!values.defined())
    throw UserError("[update_state] " + name_ + ": expected numbers, received nothing");
  StepScope* step = StepScope::current();
  const int64_t serial = step ? step->serial() : 0;
  if (step_ != serial) total_ = count_ = Tensor();  // of a step that is over
  step_ = serial;
  const Tensor in = is_floating(values.dtype()) ? values : ops::cast(values, Dtype::float32);
  const Tensor weight =
      sample_weight.defined() ? sample_weight * ops::ones_like(in) : ops::ones_like(in);
  const Tensor total = ops::sum(in * weight), count = ops::sum(weight);
  if (!step) {
    sum_ += item(total);
    weight_ += item(count);
    return;
  }
  total_ = total_.defined() ? total_ + total : total;
  count_ = count_.defined() ? count_ + count : count;
}

Tensor Tracker::result() const {
  StepScope* step = StepScope::current();
  if (!step) return constant(mean_ ? (weight_ == 0 ? 0 : sum_ / weight_) : sum_);
  if (step->serial() != step_)
    throw UserError("[result] " + name_ +
                    ": expected update_state() in this step before, received no call of it");
  if (!mean_) {
    const Tensor figure = total_ * 1.0;
    step->track(figure, {total_}, [](std::span<const double> state) { return state[1]; });
    return figure;
  }
  const Tensor figure = total_ / count_;
  step->track(figure, {total_, count_}, [](std::span<const double> state) {
    return state[2] == 0 ? 0 : state[1] / state[2];
  });
  return figure;
}

void Tracker::reset_state() {
  sum_ = weight_ = 0;
  total_ = count_ = Tensor();
}

void Tracked::update_state(const Tensor& y_true, const Tensor& y_pred,
                           const Tensor& sample_weight) {
  StepScope* step = StepScope::current();
  if (!step) return values_.update_state(y_true, y_pred, sample_weight);
  if (step_ != step->serial()) sums_.clear();  // of a step that is over
  step_ = step->serial();
  const Tensor p = ops::cast(y_pred, wide(y_pred.dtype()));
  const Tensors sums = metric_.sums(y_true, p, sample_weight);
  if (!sums_.empty())
    throw UserError(
        "[update_state] " + name() +
        ": expected one call in a step, received another one; put the samples together");
  sums_ = sums;
}

Tensor Tracked::result() const {
  StepScope* step = StepScope::current();
  if (!step) return constant(values_.result());
  if (step->serial() != step_)
    throw UserError("[result] " + name() +
                    ": expected update_state() in this step before, received no call of it");
  const Tensor figure = ops::sum(sums_[0]) * 1.0;
  step->track(figure, sums_, metric_.result);
  return figure;
}

void Tracked::reset_state() {
  values_.reset_state();
  sums_.clear();
}

}  // namespace pl::metrics
