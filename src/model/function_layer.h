// FunctionLayer: call() of a subclassed model, which is one layer to the rest.
#pragma once

#include <functional>

#include "model/layer.h"

namespace pl {

// A function of tensors made of layers, such as call() of a subclassed model, as one layer: `build`
// runs it once on symbols and finds the layers that it calls, in the order of their first calls.
// Several results are as many symbols, named output_1, output_2, ...
class FunctionLayer final : public Layer {
 public:
  using Body = std::function<Tensors(const Tensors& x, bool training)>;
  // `body` is asked for anew at each call, since what it belongs to may move.
  FunctionLayer(std::string kind, std::function<Body()> body);
  // Of the data that it will get; integers stay integers where the body can work with them. An
  // input that goes into an Embedding is one in any case.
  void expect(std::vector<Dtype> inputs) { expected_ = std::move(inputs); }
  // Has the weights of this layer too, which the body does not call: a step of the model does.
  void also(std::shared_ptr<Layer> layer, std::vector<Shape> in) {
    also_.emplace_back(std::move(layer), std::move(in));
  }

  const char* kind() const override { return kind_.c_str(); }
  Shape build(const std::vector<Shape>& in) override;
  std::vector<Symbolic> connect(const std::shared_ptr<Layer>& self,
                                const std::vector<Symbolic>& in) override;
  Tensor call(const LayerCall& call) const override;
  int64_t vocabulary(size_t input) const override { return vocabulary_.at(input); }
  std::vector<LayerMember> members() const override;
  bool trains(size_t index) const override;
  const std::vector<Shape>& results() const { return results_; }  // of one sample

 private:
  void find_layers(const std::vector<Shape>& in, const std::vector<bool>& integers);

  std::string kind_;
  std::function<Body()> body_;
  std::vector<Dtype> expected_;
  std::vector<std::pair<std::shared_ptr<Layer>, std::vector<Shape>>> also_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<Shape> shapes_;  // of the layers' last outputs
  std::vector<Shape> results_;
  std::vector<int64_t> vocabulary_;  // of each input
};

}  // namespace pl
