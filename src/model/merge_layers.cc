// Layers that join several inputs: Add, Concatenate.
#include "base/error.h"
#include "model/layers.h"
#include "op/functions.h"

namespace pl {
namespace {

void expect_several(const std::vector<Shape>& in) {
  if (in.size() < 2)
    throw UserError("expected a list of at least two inputs, received " +
                    std::to_string(in.size()));
}

class AddLayer final : public Layer {
 public:
  const char* kind() const override { return "Add"; }
  Shape build(const std::vector<Shape>& in) override {
    expect_several(in);
    for (const Shape& shape : in)
      if (shape != in[0])
        throw UserError("expected inputs of one shape, received " + in[0].text() + " and " +
                        shape.text());
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    Tensor sum = call.in[0];
    for (const Tensor& next : call.in.subspan(1)) sum = add(sum, next);
    return sum;
  }
};

class ConcatenateLayer final : public Layer {
 public:
  explicit ConcatenateLayer(int64_t axis) : axis_(axis) {}
  const char* kind() const override { return "Concatenate"; }
  std::string config() const override { return "axis " + std::to_string(axis_); }

  // Keras counts the batch as axis 0.
  Shape build(const std::vector<Shape>& in) override {
    expect_several(in);
    const int64_t rank = in[0].rank() + 1, axis = axis_ < 0 ? axis_ + rank : axis_;
    if (axis < 1 || axis >= rank)
      throw UserError("expected an axis behind the batch, below " + std::to_string(rank) +
                      ", received " + std::to_string(axis_));
    Metas metas;
    for (const Shape& shape : in) metas.push_back({Dtype::float32, shape.with_front(1)});
    return kConcatenate
        .infer(metas, {{"axis", axis}, {"parts", static_cast<int64_t>(in.size())}})[0]
        .shape.without_front();
  }
  Tensor call(const LayerCall& call) const override {
    return concatenate(Tensors(call.in.begin(), call.in.end()), axis_);
  }

 private:
  int64_t axis_;
};

}  // namespace

LayerRef Add(std::string name) {
  auto layer = std::make_shared<AddLayer>();
  layer->name = std::move(name);
  return LayerRef(std::move(layer));
}
LayerRef Concatenate(int64_t axis, std::string name) {
  auto layer = std::make_shared<ConcatenateLayer>(axis);
  layer->name = std::move(name);
  return LayerRef(std::move(layer));
}

}  // namespace pl
