// Layer: configuration first, weights once the input shape is known (build), ops when called. A
// layer holds no tensors: weights live in the arena and are handed to `call`.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

class Layer;
class UserError;
class WeightValues;

struct Weight {
  std::string name;  // "kernel"
  Shape shape;
  std::string initializer;
  bool trainable = true;
  // Set: this is another layer's weight, owner->weights()[index]. One variable, whose gradients add
  // up; name, shape and initialiser are the owner's.
  std::shared_ptr<const Layer> owner = nullptr;
  size_t index = 0;
  std::string regularizer = "";  // model/regularizer.h; its penalty is part of the loss
  std::string constraint = "";   // model/constraint.h; applied behind each update
  std::shared_ptr<const WeightValues> values = nullptr;  // where it exists already
  std::optional<Policy> dtype = {};  // of the layer inside its layer that uses it
  bool carried = false;  // from batch to batch, in any mode; Model::reset_state() makes it zero
};

// One axis or several, as Keras counts them: the batch is 0, -1 the last.
struct Axes {
  Axes(std::integral auto one) : value{static_cast<int64_t>(one)} {}
  Axes(std::initializer_list<int64_t> all) : value(all) {}
  std::vector<int64_t> value;
};
// Of a tensor with the batch as dimension 0, sorted; throws UserError on axes that it does not have
// and on the batch.
std::vector<int64_t> axes_behind_batch(const Axes& axes, const Shape& sample);

// How a weight starts and what it is held to, in the words of the layer's options.
struct WeightRules {
  std::string initializer;
  std::string regularizer = "";
  std::string constraint = "";
};
void check_rules(const WeightRules& rules);  // throws UserError

// What `call` gets. Tensors are symbols of the step being traced, with the batch as dimension 0.
struct LayerCall {
  std::span<const Tensor> in;
  std::span<const Tensor> weights;  // as Layer::weights()
  bool training;
  const Tensor& step_params;  // for random layers
  int64_t stream;             // key of random numbers: hash of layer path and call index
  bool trainable = true;      // Layer::trainable when the model was compiled
  // As `in`: boolean (B, T), true where a position counts; undefined where an input has no mask.
  std::span<const Tensor> masks = {};
  Tensor mask(size_t i) const { return i < masks.size() ? masks[i] : Tensor(); }
  // Of layers with several results: where those behind the first go (null: nobody asks for them),
  // and what the calls that made `in` put there.
  Tensors* more = nullptr;
  std::span<const Tensors> more_of_in = {};
  // Of layers made of layers: where the masks of all their results go, instead of compute_mask, and
  // what the calls that made `in` put there.
  Tensors* result_masks = nullptr;
  std::span<const Tensors> result_masks_of_in = {};
  Tensors* losses = nullptr;       // scalars that join the loss; null: nobody asks for them
  Dtype compute = Dtype::float32;  // what floating operands are in

  // Keras's add_loss: a number of the layer's own that training makes small.
  void add_loss(const Tensor& scalar) const {
    if (losses) losses->push_back(scalar);
  }
};

// A layer inside another that calls it, such as one that call() of a subclassed model uses.
struct LayerMember {
  std::shared_ptr<Layer> layer;
  std::string path;             // below the outer layer's: "dense"
  std::vector<size_t> weights;  // its weights among the outer layer's
  Shape shape;                  // of one sample of its last result
};

constexpr int64_t kAnyInteger = INT32_MAX;  // of inputs that are integers of any size

class Symbolic;

// Which of the layers made in a RematScope (remat.h) are checkpointed.
struct RematRule {
  std::string mode = "full";  // "activations", "larger_than", "list_of_layers"; "" none
  int64_t output_size_threshold = 1024;
  std::vector<std::string> layer_names = {};

  // Whether a layer is, as a whole; `output`: of one sample.
  bool covers(const std::string& name, const Shape& output) const;
};
std::shared_ptr<const RematRule> current_remat_rule();

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
  // The same of each input; kAnyInteger: integers whose range it does not know.
  virtual int64_t vocabulary(size_t input) const { return input == 0 ? vocabulary() : 0; }

  // What calling it on symbols gives; a model used as a layer puts its own layers there. Throws
  // UserError with the layer's path.
  virtual std::vector<Symbolic> connect(const std::shared_ptr<Layer>& self,
                                        const std::vector<Symbolic>& in);

  // Keras's rule for masks: a layer that supports masking hands its first input's mask on, others
  // drop it; Masking and Embedding make one (docs/decisions/0014-masks.md).
  virtual bool supports_masking() const { return false; }
  virtual Tensor compute_mask(const LayerCall& call) const {
    return supports_masking() ? call.mask(0) : Tensor();
  }

  // Whether call() may call other layers, or draw numbers by random::normal and the like.
  virtual bool calls_layers() const { return true; }
  // Layers that call() calls, as a model's call() does: `inner_(call.in[0])` with a LayerRef that
  // is a member. build_layer() finds them; their weights lie behind the layer's own.
  const std::vector<LayerMember>& parts() const { return parts_; }
  void set_parts(std::vector<LayerMember> parts) { parts_ = std::move(parts); }
  size_t own_weights() const;  // those in front of its parts'
  virtual std::vector<LayerMember> members() const { return parts_; }
  // Whether training may move weights()[index], as it stands now: layers made of layers ask those.
  virtual bool trains(size_t index) const;

  // For questions of what if: the number that sets the size of its output (units, filters), or
  // null; and its weights, put aside while it is built for other shapes.
  virtual int64_t* size() { return nullptr; }
  std::vector<Weight> exchange_weights(std::vector<Weight> weights) {
    return std::exchange(weights_, std::move(weights));
  }

  std::string name;                  // given by the user, or by the network ("dense_1")
  std::string activity_regularizer;  // of the output, divided by the batch; added to the loss
  // False: training leaves its weights as they are, and keeps neither gradients nor optimiser state
  // for them. compile() settles it.
  bool trainable = true;
  // Keras's seed argument: layers with the same seed draw the same numbers, whatever their names
  // and models, in runs with the same seed of fit().
  std::optional<uint64_t> seed;
  bool remat = false;  // what it computes on the way is computed again for its gradient
  std::shared_ptr<const RematRule> remat_rule =
      current_remat_rule();  // of the scope it was made in
  bool remats(const Shape& output) const {
    return remat || (remat_rule && remat_rule->covers(name, output));
  }
  // Keras's dtype argument, a policy: what it computes in, to which floating inputs are cast. None:
  // the model's. Variables are the model's in any case.
  std::optional<Policy> dtype;
  const std::vector<Weight>& weights() const { return weights_; }
  std::string label() const { return name.empty() ? kind() : name; }  // for messages
  int64_t parameters() const;                                         // elements of its own weights

 protected:
  // A template, so that {.initializer = ..., .regularizer = ...} means the rules below.
  template <std::convertible_to<std::string> Text>
  void add_weight(std::string name, Shape shape, const Text& initializer, bool trainable = true) {
    weights_.push_back({std::move(name), std::move(shape), initializer, trainable});
  }
  void add_weight(std::string name, Shape shape, const WeightRules& rules) {
    add_weight(std::move(name), std::move(shape), rules.initializer);
    weights_.back().regularizer = rules.regularizer;
    weights_.back().constraint = rules.constraint;
  }
  // Uses another layer's weight, which exists already.
  void share_weight(std::shared_ptr<const Layer> owner, size_t index) {
    weights_.push_back(owner->weights().at(index));
    weights_.back().owner = std::move(owner);
    weights_.back().index = index;
  }
  std::vector<Weight> weights_;

 private:
  friend class LayerRef;
  std::vector<LayerMember> parts_;
  std::weak_ptr<const void> output_;  // Symbolic::Origin of its last call
};

// A layer whose call() is made of ops alone, as ours are.
class PlainLayer : public Layer {
 public:
  bool calls_layers() const final { return false; }
};

// A shared handle to a layer; calling it on symbols builds a functional network.
class LayerRef {
 public:
  LayerRef(std::shared_ptr<Layer> layer);  // throws UserError on null
  template <std::derived_from<Layer> T>
  LayerRef(std::shared_ptr<T> layer) : LayerRef(std::shared_ptr<Layer>(std::move(layer))) {}
  Symbolic operator()(const Symbolic& in) const;
  Symbolic operator()(const std::vector<Symbolic>& in) const;
  // All results of a layer that has several, such as an LSTM with return_state.
  std::vector<Symbolic> all(const std::vector<Symbolic>& in) const;
  // In call() of a subclassed model: with the model's weights, on tensors with the batch as
  // dimension 0.
  Tensor operator()(const Tensor& in) const;
  Tensor operator()(const Tensors& in) const;
  Tensors all(const Tensors& in) const;  // all results of a layer that has several
  // Keras's dtype argument, the name of a policy: "float32" in a mixed_bfloat16 model, say. An
  // empty name changes nothing. Throws UserError.
  LayerRef dtype(const std::string& policy) const;
  // Keras's trainable argument: false freezes it, see Layer::trainable.
  LayerRef trainable(bool trains) const;
  // What its last call on symbols gave, of a layer that has one result: a model that ends there is
  // Model(model.inputs(), {model.get_layer("name").output()}). Throws UserError.
  Symbolic output() const;
  Layer* operator->() const { return layer_.get(); }
  const std::shared_ptr<Layer>& get() const { return layer_; }

 private:
  std::shared_ptr<Layer> layer_;
};

// What went wrong in building a layer, with the path that it has there: "[build] path: expected
// ...", or "[build] path/inner: ..." where the error names a layer inside it.
UserError build_error(const std::string& path, const UserError& error);

// Weights that exist already, of layers that another model is made of.
class WeightValues {
 public:
  virtual ~WeightValues() = default;
  // Of layer.weights()[index], in this dtype; null: there are none.
  virtual const void* find(const Layer& layer, size_t index, Dtype dtype) const = 0;
};

// A layer's output before any data: the shape of one sample and where it comes from.
class Symbolic {
 public:
  struct Origin {
    std::shared_ptr<Layer> layer;  // null: an input
    std::vector<Symbolic> in;
    Shape shape;
    std::string name = "";  // of an input
    // Of a layer inside a model that is used as a layer:
    std::string path = "";              // "inner/dense"
    std::optional<bool> training = {};  // runs in that mode whatever the outer model does
  };
  explicit Symbolic(std::shared_ptr<const Origin> origin) : origin_(std::move(origin)) {}
  const Shape& shape() const { return origin_->shape; }
  const std::shared_ptr<const Origin>& origin() const { return origin_; }

 private:
  std::shared_ptr<const Origin> origin_;
};

// An input of samples with this shape (without the batch). Data may be given by its name.
Symbolic Input(Shape shape, std::string name = "");

}  // namespace pl
