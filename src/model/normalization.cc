#include <algorithm>

#include "base/error.h"
#include "base/number_text.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"
#include "op/recorder.h"

namespace pl {
namespace {

// A permutation that puts these axes last; the one that undoes a permutation.
std::vector<int64_t> axes_last(const std::vector<int64_t>& axes, int rank) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < rank; ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) order.push_back(d);
  order.insert(order.end(), axes.begin(), axes.end());
  return order;
}
std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

class LayerNormalizationLayer final : public PlainLayer {
 public:
  explicit LayerNormalizationLayer(LayerNormalizationOptions options)
      : options_(std::move(options)) {
    if (!(options_.epsilon > 0 && options_.epsilon < 1))
      throw UserError("[LayerNormalization] epsilon: expected a number between 0 and 1, received " +
                      number_text(options_.epsilon));
    check_rules(gamma_rules(options_));
    check_rules(beta_rules(options_));
    set_common(*this, options_);
  }
  const char* kind() const override { return "LayerNormalization"; }
  bool supports_masking() const override { return true; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 1)
      throw UserError("expected one input with features along its last axis, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    std::vector<Dim> sizes;
    for (int64_t axis : axes_behind_batch(options_.axis, in[0]))
      sizes.push_back(in[0][static_cast<int>(axis) - 1]);
    const Shape features(std::move(sizes));
    if (!weights_.empty() && weights_[0].shape != features)
      throw UserError("expected " + weights_[0].shape.text() +
                      " features as in its first call, received " + in[0].text());
    if (weights_.empty()) {
      if (options_.scale) add_weight("gamma", features, gamma_rules(options_));
      if (options_.center) add_weight("beta", features, beta_rules(options_));
    }
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    const std::vector<int64_t> axes = axes_behind_batch(options_.axis, x.shape().without_front());
    Dim features = 1;
    for (int64_t axis : axes) features *= x.shape()[static_cast<int>(axis)];
    size_t next = 0;
    auto parameter = [&](bool exists, double otherwise) {
      return exists ? reshape(call.weights[next++], {features})
                    : fill(Shape{features}, otherwise, wide(x.dtype()));
    };
    const Tensor gamma = parameter(options_.scale, 1), beta = parameter(options_.center, 0);
    if (axes == std::vector<int64_t>{x.shape().rank() - 1})
      return layer_norm(x, gamma, beta, options_.epsilon).y;
    const std::vector<int64_t> order = axes_last(axes, x.shape().rank());
    const Tensor moved = transpose(x, order);
    const Tensor rows = reshape(moved, {x.shape().elements() / features, features});
    const Tensor y = layer_norm(rows, gamma, beta, options_.epsilon).y;
    return transpose(reshape(y, moved.shape().dims()), inverse(order));
  }

 private:
  LayerNormalizationOptions options_;
};

void expect_between(const char* what, double value, bool fits, const char* range) {
  if (!fits)
    throw UserError("[BatchNormalization] " + std::string(what) + ": expected a number " + range +
                    ", received " + number_text(value));
}

class BatchNormalizationLayer final : public PlainLayer {
 public:
  explicit BatchNormalizationLayer(BatchNormalizationOptions options)
      : options_(std::move(options)) {
    expect_between("momentum", options_.momentum, options_.momentum >= 0 && options_.momentum <= 1,
                   "from 0 to 1");
    expect_between("epsilon", options_.epsilon, options_.epsilon > 0 && options_.epsilon < 1,
                   "between 0 and 1");
    check_rules(gamma_rules(options_));
    check_rules(beta_rules(options_));
    check_initializer(options_.moving_mean_initializer);
    check_initializer(options_.moving_variance_initializer);
    set_common(*this, options_);
  }
  const char* kind() const override { return "BatchNormalization"; }
  bool supports_masking() const override { return true; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 1)
      throw UserError("expected one input with channels along its last axis, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Shape channels{in[0][axis_of(in[0]) - 1]};
    if (!weights_.empty() && weights_[0].shape != channels)
      throw UserError("expected " + std::to_string(weights_[0].shape[0]) +
                      " channels as in its first call, received " + in[0].text());
    if (weights_.empty()) {
      if (options_.scale) add_weight("gamma", channels, gamma_rules(options_));
      if (options_.center) add_weight("beta", channels, beta_rules(options_));
      add_weight("moving_mean", channels, options_.moving_mean_initializer, false);
      add_weight("moving_variance", channels, options_.moving_variance_initializer, false);
    }
    return in[0];
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& given = call.in[0];
    const int rank = given.shape().rank(), axis = axis_of(given.shape().without_front());
    const std::vector<int64_t> order = axes_last({axis}, rank);
    const Tensor x = transpose(given, order);
    size_t next = 0;
    auto parameter = [&](bool exists, double otherwise) {
      return exists ? call.weights[next++] : fill(Shape{x.shape().back()}, otherwise, x.dtype());
    };
    const Tensor gamma = parameter(options_.scale, 1), beta = parameter(options_.center, 0);
    const Tensor &moving_mean = call.weights[next], &moving_variance = call.weights[next + 1];
    // Frozen, it runs as in inference: Keras's rule.
    if (!call.training || !call.trainable) {
      const Tensor y =
          batch_norm_apply(x, moving_mean, moving_variance, gamma, beta, options_.epsilon);
      return transpose(y, inverse(order));
    }
    BatchNormResult result;
    if (!call.mask(0).defined()) {
      result = batch_norm(x, gamma, beta, options_.epsilon);
    } else {
      const BatchMoments moments = masked_moments(given, call.mask(0), order);
      result = {batch_norm_by(x, moments, gamma, beta), moments.mean, moments.variance};
    }
    // A layer that is called twice moves them twice.
    moving_statistics(last_version(moving_mean), last_version(moving_variance), result.mean,
                      result.variance, options_.momentum);
    return transpose(result.y, inverse(order));
  }

 private:
  int axis_of(const Shape& sample) const {
    return static_cast<int>(axes_behind_batch(options_.axis, sample)[0]);
  }

  // Of the positions that count, as Keras has it: its 1e-7 keeps batches without any finite. The
  // mask has given's shape without the last dimension; `order` brings channels to the end.
  BatchMoments masked_moments(const Tensor& given, const Tensor& mask,
                              const std::vector<int64_t>& order) const {
    const Shape& shape = given.shape();
    if (mask.shape().rank() != shape.rank() - 1)
      throw UserError(
          "[BatchNormalization] expected a mask with one dimension less than the input " +
          shape.text() + ", received " + mask.shape().text());
    const Tensor wide_given = cast(given, wide(given.dtype()));
    Shape column = shape;
    column[shape.rank() - 1] = 1;
    std::vector<int64_t> rows;
    for (int64_t d = 0; d + 1 < shape.rank(); ++d) rows.push_back(d);
    const Tensor w = transpose(reshape(cast(mask, wide_given.dtype()), column.dims()), order);
    const Tensor x = transpose(wide_given, order);
    // Each position counts for all numbers of its last dimension that are one channel's.
    const Dim each = order.back() == shape.rank() - 1 ? 1 : shape.back();
    const Tensor count = scale(reduce_sum(w, rows), static_cast<double>(each), 1e-7);
    const Tensor weighted = multiply(w, x);
    const Tensor mean = divide(reduce_sum(weighted, rows), count);
    const Tensor distance = multiply(w, square(subtract(weighted, mean)));
    return {mean, divide(reduce_sum(distance, rows), count)};
  }

  Tensor batch_norm_by(const Tensor& x, const BatchMoments& moments, const Tensor& gamma,
                       const Tensor& beta) const {
    const Dtype dtype = moments.mean.dtype();
    const Tensor factor =
        divide(cast(gamma, dtype), sqrt(scale(moments.variance, 1, options_.epsilon)));
    const Tensor centred = subtract(cast(x, dtype), moments.mean);
    return cast(add(multiply(centred, factor), cast(beta, dtype)), x.dtype());
  }

  BatchNormalizationOptions options_;
};

}  // namespace

LayerRef BatchNormalization(BatchNormalizationOptions options) {
  return LayerRef(std::make_shared<BatchNormalizationLayer>(std::move(options)));
}

LayerRef LayerNormalization(LayerNormalizationOptions options) {
  return LayerRef(std::make_shared<LayerNormalizationLayer>(std::move(options)));
}

}  // namespace pl
