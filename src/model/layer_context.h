// What calling a layer on tensors means: the model whose call() is running has its weights. Layers
// hold none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"

namespace pl {

class LayerContext {
 public:
  // `training`: the mode, if it is not that of the call around it.
  virtual Tensor call(const std::shared_ptr<Layer>& layer, const Tensors& in,
                      std::optional<bool> training = {}) = 0;
  // Whether it belongs to this model, which then calls itself as usual; others are its layers.
  virtual bool runs(const void* /*model*/) const { return false; }
  static LayerContext* current();  // null outside of a model's call()

 protected:
  LayerContext();
  ~LayerContext();

 private:
  LayerContext* previous_;
};

// A function of tensors made of layers, such as call() of a subclassed model, as one layer: `build`
// runs it once on symbols and finds the layers that it calls, in the order of their first calls.
class FunctionLayer final : public Layer {
 public:
  using Body = std::function<Tensor(const Tensor& x, bool training)>;
  // `body` is asked for anew at each call, since what it belongs to may move.
  FunctionLayer(std::string kind, std::function<Body()> body);

  const char* kind() const override { return kind_.c_str(); }
  Shape build(const std::vector<Shape>& in) override;
  Tensor call(const LayerCall& call) const override;
  const std::vector<std::shared_ptr<Layer>>& layers() const { return layers_; }
  const std::vector<Shape>& shapes() const { return shapes_; }  // of the layers' last outputs

 private:
  class Building;
  class Calling;
  std::string kind_;
  std::function<Body()> body_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<Shape> shapes_;
};

}  // namespace pl
