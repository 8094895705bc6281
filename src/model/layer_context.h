// What calling a layer on tensors means: the model whose call() is running has its weights. Layers
// hold none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"
#include "trace/variable.h"

namespace pl {

class LayerContext {
 public:
  // All results. `training`: the mode, if it is not that of the call around it.
  virtual Tensors call(const std::shared_ptr<Layer>& layer, const Tensors& in,
                       std::optional<bool> training = {}) = 0;
  // Whether it belongs to this model, which then calls itself as usual; others are its layers.
  virtual bool runs(const void* /*model*/) const { return false; }
  static LayerContext* current();  // null outside of a model's call()
  // Whether some context around runs call() on symbols to find its layers and shapes.
  static bool sketching();

 protected:
  explicit LayerContext(bool sketches = false);
  ~LayerContext();

 private:
  LayerContext* previous_;
  bool sketches_;
};

// While call() runs on symbols to find shapes, values are constants; variables too, but for those
// that training would have to move: these throw UserError.
class SketchValues final : public VariableTracer {
 public:
  explicit SketchValues(Recorder& recorder);
  ~SketchValues();
  Tensor read(const std::shared_ptr<VariableState>& variable) override;

 private:
  Tensor constant(const Meta& meta);
  Recorder& recorder_;
};
// What is wrong with reading such a variable in call().
std::string untrained_text(const std::string& variable);

// Layer::call, with the layers that it calls (Layer::parts) at their weights.
Tensor run_layer(const Layer& layer, const LayerCall& call);
// Runs call() of a layer that is built once on symbols, and makes the layers that it calls parts of
// it. What goes wrong there counts only for a layer that has parts.
void find_parts(Layer& layer, const std::vector<Shape>& in);

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
