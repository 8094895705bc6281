// Layers that move elements or masks and compute nothing else: Flatten, Permute, RepeatVector,
// Masking, Identity; and Lambda.
#include "base/error.h"
#include "model/layer_context.h"
#include "model/layers.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "op/step_params.h"

namespace pl {
namespace {

const Shape& expect_one(const std::vector<Shape>& in) {
  if (in.size() != 1) throw UserError("expected one input, received " + std::to_string(in.size()));
  return in[0];
}

class FlattenLayer final : public PlainLayer {
 public:
  explicit FlattenLayer(std::string given_name) { name = std::move(given_name); }
  const char* kind() const override { return "Flatten"; }
  Shape build(const std::vector<Shape>& in) override { return Shape{expect_one(in).elements()}; }
  Tensor call(const LayerCall& call) const override {
    const Shape& shape = call.in[0].shape();
    return reshape(call.in[0], {shape[0], shape.without_front().elements()});
  }
};

class PermuteLayer final : public PlainLayer {
 public:
  PermuteLayer(std::vector<int64_t> dims, std::string given_name) : dims_(std::move(dims)) {
    std::vector<bool> seen(dims_.size(), false);
    for (int64_t dim : dims_) {
      const bool good = dim >= 1 && dim <= static_cast<int64_t>(dims_.size()) &&
                        !seen[static_cast<size_t>(dim - 1)];
      if (!good)
        throw UserError("[Permute] dims: expected each of 1 to " + std::to_string(dims_.size()) +
                        " once, received " + Shape(dims_).text());
      seen[static_cast<size_t>(dim - 1)] = true;
    }
    name = std::move(given_name);
  }
  const char* kind() const override { return "Permute"; }
  Shape build(const std::vector<Shape>& in) override {
    if (expect_one(in).rank() != static_cast<int>(dims_.size()))
      throw UserError("expected samples of " + std::to_string(dims_.size()) +
                      " dimensions, received " + in[0].text());
    std::vector<Dim> out;
    for (int64_t dim : dims_) out.push_back(in[0][static_cast<int>(dim) - 1]);
    return Shape(std::move(out));
  }
  Tensor call(const LayerCall& call) const override {
    std::vector<int64_t> order{0};
    order.insert(order.end(), dims_.begin(), dims_.end());
    return transpose(call.in[0], order);
  }

 private:
  std::vector<int64_t> dims_;  // 1 is the first behind the batch
};

class RepeatVectorLayer final : public PlainLayer {
 public:
  RepeatVectorLayer(int64_t n, std::string given_name) : n_(n) {
    if (n < 1)
      throw UserError("[RepeatVector] n: expected a positive number, received " +
                      std::to_string(n));
    name = std::move(given_name);
  }
  const char* kind() const override { return "RepeatVector"; }
  std::string config() const override { return std::to_string(n_); }
  Shape build(const std::vector<Shape>& in) override {
    if (expect_one(in).rank() != 1)
      throw UserError("expected samples (features), received " + in[0].text());
    return Shape{n_, in[0][0]};
  }
  Tensor call(const LayerCall& call) const override {
    const Shape& x = call.in[0].shape();
    return broadcast_to(reshape(call.in[0], {x[0], 1, x[1]}), Shape{x[0], n_, x[1]});
  }

 private:
  int64_t n_;
};

// Positions whose features all equal mask_value are masked, and become 0.
class MaskingLayer final : public PlainLayer {
 public:
  MaskingLayer(double value, std::string given_name) : value_(value) {
    name = std::move(given_name);
  }
  const char* kind() const override { return "Masking"; }
  Shape build(const std::vector<Shape>& in) override {
    if (expect_one(in).rank() < 2)
      throw UserError("expected samples (positions, features), received " + in[0].text());
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    // A whole number, which has no slope.
    const Tensor counts = cast(cast(counting(x), Dtype::uint8), x.dtype());
    return multiply(x, counts);
  }
  Tensor compute_mask(const LayerCall& call) const override {
    const Tensor counts = counting(call.in[0]);
    std::vector<Dim> dims = counts.shape().dims();
    dims.pop_back();
    return cast(reshape(counts, std::move(dims)), Dtype::boolean);
  }

 private:
  // (..., 1): 1 where a feature is not the value.
  Tensor counting(const Tensor& x) const {
    const Tensor equal = equal_mask(x, fill({}, value_, x.dtype()));
    return reduce_max(scale(equal, -1, 1), {-1}, true);
  }
  double value_;
};

class IdentityLayer final : public PlainLayer {
 public:
  explicit IdentityLayer(std::string given_name) { name = std::move(given_name); }
  const char* kind() const override { return "Identity"; }
  bool supports_masking() const override { return true; }
  Shape build(const std::vector<Shape>& in) override { return expect_one(in); }
  Tensor call(const LayerCall& call) const override { return call.in[0]; }
};

class LambdaLayer final : public Layer {
 public:
  LambdaLayer(LambdaFunction function, std::string given_name, std::string kind = "Lambda")
      : kind_(std::move(kind)), function_(std::move(function)) {
    if (!function_) throw UserError("[Lambda] expected a function, received none");
    name = std::move(given_name);
  }
  const char* kind() const override { return kind_.c_str(); }
  bool calls_layers() const override { return kind_ == "Lambda"; }  // it may draw numbers
  // Traces the function once, on a batch that no dimension is likely to have.
  Shape build(const std::vector<Shape>& in) override {
    constexpr Dim kBatch = 7;
    Recorder recorder;
    RecorderScope scope(recorder);
    const SketchValues values(recorder);
    const RandomScope random(recorder.input("step_params", step_params_meta(), false), 0);
    Tensors symbols;
    for (const Shape& shape : in)
      symbols.push_back(recorder.input("in", {Dtype::float32, shape.with_front(kBatch)}, true));
    const Tensor out = function_(symbols);
    if (!out.defined() || !carries_rows(out) || out.shape().rank() < 1 || out.shape()[0] != kBatch)
      throw UserError("expected a function that keeps the batch as dimension 0, received " +
                      (out.defined() ? out.shape().text() : "nothing") + " for a batch of 7");
    return out.shape().without_front();
  }
  Tensor call(const LayerCall& call) const override {
    return function_(Tensors(call.in.begin(), call.in.end()));
  }

 private:
  std::string kind_;
  LambdaFunction function_;
};

}  // namespace

LayerRef Flatten(std::string name) {
  return LayerRef(std::make_shared<FlattenLayer>(std::move(name)));
}
LayerRef Permute(std::vector<int64_t> dims, std::string name) {
  return LayerRef(std::make_shared<PermuteLayer>(std::move(dims), std::move(name)));
}
LayerRef RepeatVector(int64_t n, std::string name) {
  return LayerRef(std::make_shared<RepeatVectorLayer>(n, std::move(name)));
}
LayerRef Masking(double mask_value, std::string name) {
  return LayerRef(std::make_shared<MaskingLayer>(mask_value, std::move(name)));
}
LayerRef Identity(std::string name) {
  return LayerRef(std::make_shared<IdentityLayer>(std::move(name)));
}
LayerRef op_layer(std::string kind, LambdaFunction function) {
  return LayerRef(std::make_shared<LambdaLayer>(std::move(function), "", std::move(kind)));
}
LayerRef Lambda(LambdaFunction function, std::string name) {
  return LayerRef(std::make_shared<LambdaLayer>(std::move(function), std::move(name)));
}

}  // namespace pl
