// Layers that are active while training alone: Dropout and its relatives, noise; and
// ActivityRegularization.
#include <cmath>

#include "base/error.h"
#include "base/number_text.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

// One input, whose shape stays and whose mask is handed on.
class NoiseLayer : public PlainLayer {
 public:
  bool supports_masking() const override { return true; }
  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1)
      throw UserError("expected one input, received " + std::to_string(in.size()));
    return in[0];
  }
};

void expect_rate(const char* kind, double rate) {
  if (!(rate >= 0 && rate < 1))
    throw UserError("[" + std::string(kind) + "] rate: expected 0 <= rate < 1, received " +
                    number_text(rate));
}

// Ones of this shape, of which dropout leaves a share; (B, ...) with the batch's rows.
Tensor kept_ones(const LayerCall& call, const Shape& shape, double rate, Dtype dtype,
                 bool rows = true) {
  return dropout(fill(shape, 1, dtype, rows), call.step_params, rate, call.stream);
}

// With what is dropped together: DropoutOptions::noise_shape.
class SharedNoiseLayer : public NoiseLayer {
 public:
  SharedNoiseLayer(double rate, DropoutOptions options)
      : rate_(rate), noise_shape_(std::move(options.noise_shape)) {
    set_common(*this, options);
  }
  std::string config() const override { return number_text(rate_); }
  Shape build(const std::vector<Shape>& in) override {
    const Shape sample = NoiseLayer::build(in);
    if (noise_shape_.empty()) return sample;
    bool fits = noise_shape_.size() == static_cast<size_t>(sample.rank()) + 1;
    for (int d = 0; fits && d < sample.rank(); ++d) {
      const Dim size = noise_shape_[static_cast<size_t>(d) + 1];
      fits = size == 0 || size == 1 || size == sample[d];
    }
    if (!fits || noise_shape_[0] < 0 || noise_shape_[0] > 1)
      throw UserError("expected a noise_shape of 0 or 1 for the batch, then 0, 1 or the input's " +
                      std::string("size, received ") + Shape(noise_shape_).text() + " for " +
                      sample.text());
    return sample;
  }

 protected:
  // 0 or 1 / (1 - rate), of x's shape or one that broadcasts to it.
  Tensor noise(const LayerCall& call) const {
    const Tensor& x = call.in[0];
    Shape shape = x.shape();
    for (int d = 0; d < shape.rank() && !noise_shape_.empty(); ++d)
      if (noise_shape_[static_cast<size_t>(d)] == 1) shape[d] = 1;
    const bool rows = noise_shape_.empty() || noise_shape_[0] == 0;
    return kept_ones(call, shape, rate_, x.dtype(), rows);
  }
  double rate_;
  std::vector<Dim> noise_shape_;
};

class DropoutLayer final : public SharedNoiseLayer {
 public:
  explicit DropoutLayer(double rate, DropoutOptions options = {})
      : SharedNoiseLayer(rate, std::move(options)) {
    if (rate != 1) expect_rate("Dropout", rate);
  }
  const char* kind() const override { return "Dropout"; }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    if (!call.training || rate_ == 0) return x;
    if (rate_ == 1) return scale(x, 0);
    return noise_shape_.empty() ? dropout(x, call.step_params, rate_, call.stream)
                                : multiply(x, noise(call));
  }
};

class SpatialDropoutLayer final : public NoiseLayer {
 public:
  SpatialDropoutLayer(const char* kind, int axes, double rate)
      : kind_(kind), axes_(axes), rate_(rate) {
    if (rate != 1) expect_rate(kind, rate);
  }
  const char* kind() const override { return kind_; }
  std::string config() const override { return number_text(rate_); }
  Shape build(const std::vector<Shape>& in) override {
    if (NoiseLayer::build(in).rank() != axes_ + 1)
      throw UserError("expected samples of " + std::to_string(axes_ + 1) +
                      " dimensions, the last of which counts channels, received " + in[0].text());
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    if (!call.training || rate_ == 0) return x;
    if (rate_ == 1) return scale(x, 0);
    std::vector<Dim> dims(static_cast<size_t>(axes_) + 2, 1);
    dims.front() = x.shape()[0];
    dims.back() = x.shape().back();
    return multiply(x, kept_ones(call, Shape(std::move(dims)), rate_, x.dtype()));
  }

 private:
  const char* kind_;
  int axes_;
  double rate_;
};

// x + noise or x * noise, normal around 0 or 1.
class GaussianLayer final : public NoiseLayer {
 public:
  GaussianLayer(bool times, double stddev) : times_(times), stddev_(stddev) {}
  const char* kind() const override { return times_ ? "GaussianDropout" : "GaussianNoise"; }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    if (!call.training || stddev_ == 0) return x;
    const RandomOptions drawn{.a = times_ ? 1.0 : 0.0, .b = stddev_};
    const Tensor noise = draw(x.shape(), call.step_params, call.stream, drawn, x.dtype(), true);
    return times_ ? multiply(x, noise) : add(x, noise);
  }

 private:
  bool times_;
  double stddev_;
};

class AlphaDropoutLayer final : public SharedNoiseLayer {
 public:
  explicit AlphaDropoutLayer(double rate, DropoutOptions options = {})
      : SharedNoiseLayer(rate, std::move(options)) {
    expect_rate("AlphaDropout", rate);
  }
  const char* kind() const override { return "AlphaDropout"; }
  // With k 1 where kept: a * (x * k + low * (1 - k)) + b, low what selu tends to.
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    if (!call.training || rate_ == 0) return x;
    const double low = -1.6732632423543772848 * 1.0507009873554804934;
    const double a = 1 / std::sqrt((1 - rate_) * (1 + rate_ * low * low)), b = -a * low * rate_;
    const Tensor kept = scale(noise(call), 1 - rate_);
    const Tensor mixed = add(multiply(x, kept), scale(kept, -low, low));
    return scale(mixed, a, b);
  }
};

class ActivityRegularizationLayer final : public NoiseLayer {
 public:
  explicit ActivityRegularizationLayer(const ActivityRegularizationOptions& options) {
    activity_regularizer = regularizers::L1L2({.l1 = options.l1, .l2 = options.l2});
    check_regularizer(activity_regularizer);
    set_common(*this, options);
  }
  const char* kind() const override { return "ActivityRegularization"; }
  Tensor call(const LayerCall& call) const override { return call.in[0]; }
};

template <class T, class... Args>
LayerRef with_options(const NoiseOptions& options, Args&&... args) {
  auto layer = std::make_shared<T>(std::forward<Args>(args)...);
  set_common(*layer, options);
  return LayerRef(std::move(layer));
}

template <class T, class... Args>
LayerRef named(std::string name, Args&&... args) {
  auto layer = std::make_shared<T>(std::forward<Args>(args)...);
  if (!name.empty()) layer->name = std::move(name);
  return LayerRef(std::move(layer));
}

}  // namespace

LayerRef Dropout(double rate, const char* name) { return named<DropoutLayer>(name, rate); }
LayerRef Dropout(double rate, DropoutOptions options) {
  return LayerRef(std::make_shared<DropoutLayer>(rate, std::move(options)));
}
LayerRef SpatialDropout1D(double rate, NoiseOptions options) {
  return with_options<SpatialDropoutLayer>(options, "SpatialDropout1D", 1, rate);
}
LayerRef SpatialDropout2D(double rate, NoiseOptions options) {
  return with_options<SpatialDropoutLayer>(options, "SpatialDropout2D", 2, rate);
}
LayerRef SpatialDropout3D(double rate, NoiseOptions options) {
  return with_options<SpatialDropoutLayer>(options, "SpatialDropout3D", 3, rate);
}
LayerRef GaussianNoise(double stddev, NoiseOptions options) {
  if (!(stddev >= 0) || std::isinf(stddev))
    throw UserError("[GaussianNoise] stddev: expected a number from 0, received " +
                    number_text(stddev));
  return with_options<GaussianLayer>(options, false, stddev);
}
LayerRef GaussianDropout(double rate, NoiseOptions options) {
  expect_rate("GaussianDropout", rate);
  return with_options<GaussianLayer>(options, true, std::sqrt(rate / (1 - rate)));
}
LayerRef AlphaDropout(double rate, const char* name) {
  return named<AlphaDropoutLayer>(name, rate);
}
LayerRef AlphaDropout(double rate, DropoutOptions options) {
  return LayerRef(std::make_shared<AlphaDropoutLayer>(rate, std::move(options)));
}
LayerRef ActivityRegularization(ActivityRegularizationOptions options) {
  return LayerRef(std::make_shared<ActivityRegularizationLayer>(options));
}

}  // namespace pl
