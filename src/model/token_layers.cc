// Reshape, and what a class token needs: ClassToken puts it in, TakePosition takes it out.
#include "base/error.h"
#include "model/initializer.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

class ReshapeLayer final : public PlainLayer {
 public:
  explicit ReshapeLayer(std::vector<Dim> target) : target_(std::move(target)) {
    int open = 0;
    for (Dim dim : target_) {
      open += dim == -1;
      if (dim < -1 || dim == 0 || open > 1)
        throw UserError(
            "[Reshape] target_shape: expected positive numbers and at most one -1, received " +
            std::to_string(dim));
    }
  }
  const char* kind() const override { return "Reshape"; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1)
      throw UserError("expected one input, received " + std::to_string(in.size()));
    const Shape out(resolved(in[0]));
    if (out.elements() != in[0].elements())
      throw UserError("expected as many elements as target_shape has, received " + in[0].text());
    return out;
  }
  Tensor call(const LayerCall& call) const override {
    std::vector<Dim> dims = resolved(call.in[0].shape().without_front());
    dims.insert(dims.begin(), call.in[0].shape()[0]);
    return reshape(call.in[0], std::move(dims));
  }

 private:
  // The target for this sample, without -1.
  std::vector<Dim> resolved(const Shape& sample) const {
    Dim known = 1;
    for (Dim dim : target_)
      if (dim > 0) known *= dim;
    std::vector<Dim> dims = target_;
    for (Dim& dim : dims)
      if (dim == -1) dim = sample.elements() / known;
    return dims;
  }

  std::vector<Dim> target_;
};

class ClassTokenLayer final : public PlainLayer {
 public:
  explicit ClassTokenLayer(ClassTokenOptions options) : options_(std::move(options)) {
    check_initializer(options_.token_initializer);
    set_common(*this, options_);
  }
  const char* kind() const override { return "ClassToken"; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() != 2)
      throw UserError("expected samples (positions, features), received " +
                      (in.empty() ? "nothing" : in[0].text()));
    if (!weights_.empty() && weights_[0].shape[1] != in[0][1])
      throw UserError("expected " + std::to_string(weights_[0].shape[1]) +
                      " features as in its first call, received " + in[0].text());
    if (weights_.empty()) add_weight("token", Shape{1, in[0][1]}, options_.token_initializer);
    return Shape{in[0][0] + 1, in[0][1]};
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];  // (B, T, D)
    const Tensor token = broadcast_to(call.weights[0], {x.shape()[0], 1, x.shape()[2]}, true);
    return concatenate({token, x}, 1);
  }

 private:
  ClassTokenOptions options_;
};

class TakePositionLayer final : public PlainLayer {
 public:
  explicit TakePositionLayer(int64_t position) : position_(position) {
    if (position < 0)
      throw UserError("[TakePosition] position: expected 0 or more, received " +
                      std::to_string(position));
  }
  const char* kind() const override { return "TakePosition"; }
  std::string config() const override { return std::to_string(position_); }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() != 2 || in[0][0] <= position_)
      throw UserError("expected samples (positions, features) with more than " +
                      std::to_string(position_) + " positions, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    return Shape{in[0][1]};
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];  // (B, T, D)
    return reshape(slice(x, 1, position_, 1), {x.shape()[0], x.shape()[2]});
  }

 private:
  int64_t position_;
};

template <class T, class... Args>
LayerRef named(std::string name, Args&&... args) {
  auto layer = std::make_shared<T>(std::forward<Args>(args)...);
  layer->name = std::move(name);
  return LayerRef(std::move(layer));
}

}  // namespace

LayerRef Reshape(std::vector<Dim> target_shape, std::string name) {
  return named<ReshapeLayer>(std::move(name), std::move(target_shape));
}
LayerRef ClassToken(ClassTokenOptions options) {
  return LayerRef(std::make_shared<ClassTokenLayer>(std::move(options)));
}
LayerRef TakePosition(int64_t position, std::string name) {
  return named<TakePositionLayer>(std::move(name), position);
}

}  // namespace pl
