// Layer: configuration first, weights once the input shape is known (build), ops when called. A
// layer holds no tensors: weights live in the arena and are handed to `call`.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

class Layer;

struct Weight {
  std::string name;  // "kernel"
  Shape shape;
  std::string initializer;
  bool trainable = true;
  // Set: this is another layer's weight, owner->weights()[index]. One variable, whose gradients add
  // up; name, shape and initialiser are the owner's.
  std::shared_ptr<const Layer> owner = nullptr;
  size_t index = 0;
};

// What `call` gets. Tensors are symbols of the step being traced, with the batch as dimension 0.
struct LayerCall {
  std::span<const Tensor> in;
  std::span<const Tensor> weights;  // as Layer::weights()
  bool training;
  const Tensor& step_params;  // for random layers
  int64_t stream;             // key of random numbers: hash of layer path and call index
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual const char* kind() const = 0;  // Keras's class name
  // Shapes are those of one sample. Sets the weights; answers the output's shape; throws UserError
  // "expected ..., received ...", to which the caller adds the layer's path.
  virtual Shape build(const std::vector<Shape>& in) = 0;
  virtual Tensor call(const LayerCall& call) const = 0;
  virtual std::string config() const { return ""; }  // short, for `models` and summary
  // Above 0: the input is int32 tokens in [0, vocabulary()), and is not cast to a floating dtype.
  virtual int64_t vocabulary() const { return 0; }

  std::string name;  // given by the user, or by the network ("dense_1")
  const std::vector<Weight>& weights() const { return weights_; }
  int64_t parameters() const;  // elements of its own weights

 protected:
  void add_weight(std::string name, Shape shape, std::string initializer, bool trainable = true) {
    weights_.push_back({std::move(name), std::move(shape), std::move(initializer), trainable});
  }
  // Uses another layer's weight, which exists already.
  void share_weight(std::shared_ptr<const Layer> owner, size_t index) {
    weights_.push_back(owner->weights().at(index));
    weights_.back().owner = std::move(owner);
    weights_.back().index = index;
  }
  std::vector<Weight> weights_;
};

class Symbolic;

// A shared handle to a layer; calling it on symbols builds a functional network.
class LayerRef {
 public:
  LayerRef(std::shared_ptr<Layer> layer);  // throws UserError on null
  Symbolic operator()(const Symbolic& in) const;
  Symbolic operator()(const std::vector<Symbolic>& in) const;
  // In call() of a subclassed model: with the model's weights, on tensors with the batch as
  // dimension 0.
  Tensor operator()(const Tensor& in) const;
  Tensor operator()(const Tensors& in) const;
  Layer* operator->() const { return layer_.get(); }
  const std::shared_ptr<Layer>& get() const { return layer_; }

 private:
  std::shared_ptr<Layer> layer_;
};

// A layer's output before any data: the shape of one sample and where it comes from.
class Symbolic {
 public:
  struct Origin {
    std::shared_ptr<Layer> layer;  // null: an input
    std::vector<Symbolic> in;
    Shape shape;
  };
  explicit Symbolic(std::shared_ptr<const Origin> origin) : origin_(std::move(origin)) {}
  const Shape& shape() const { return origin_->shape; }
  const std::shared_ptr<const Origin>& origin() const { return origin_; }

 private:
  std::shared_ptr<const Origin> origin_;
};

// An input of samples with this shape (without the batch).
Symbolic Input(Shape shape);

}  // namespace pl
