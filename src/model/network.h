// Network: layers and how they are connected, as plain data. It knows shapes and weights, and can
// run itself on symbols; training it is train/'s business.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/layer.h"

namespace pl {

struct NetworkWeight {
  std::string path;  // "conv2d/kernel"
  Shape shape;
  std::string initializer;
  bool trainable;  // the optimiser moves it
  std::string regularizer = "";
  std::string constraint = "";
  bool state = false;                      // moved by its layer if at all, such as a moving average
  std::shared_ptr<Layer> layer = nullptr;  // whose weights()[index] it is
  size_t index = 0;
  std::shared_ptr<const WeightValues> values = nullptr;  // where it exists already
  std::optional<Policy> dtype = {};  // its layer's, where that has one of its own
  bool carried = false;              // Weight::carried
};

// What a call of a network says beside its outputs.
struct NetworkNotes {
  Tensors masks;   // as the outputs; undefined where there is none
  Tensors losses;  // scalars that layers add to the loss: activity regularizers
  // To be set: random layers of calls with different ones draw different numbers.
  int64_t salt = 0;
  Tensors input_masks = {};  // to be set where inputs have masks
};

// Adds a layer's activity regularizer of what it gave, per sample, to `losses`, if there is one.
void add_activity_loss(const Layer& layer, const Tensor& out, Tensors* losses);

class Network {
 public:
  // One call of a layer; operands and result are slots. Slots [0, inputs) are the network's inputs.
  struct Call {
    std::shared_ptr<Layer> layer;
    std::string path;  // "dense", or "inner/dense" of a model used as a layer
    std::vector<int> in;
    int out;
    Shape shape;                        // of one sample of the result
    std::vector<int> weights;           // into weights()
    bool trainable = true;              // Layer::trainable as it was settled
    std::optional<bool> training = {};  // runs in that mode whatever is asked for
  };

  // A layer of the network, or of one that is made of layers: once, however often it is called.
  struct Place {
    std::shared_ptr<Layer> layer;
    std::string path;          // "model/dense"
    std::vector<int> weights;  // into weights()
    Shape shape;               // of one sample of its (last) result
    bool composite;            // made of layers, which follow
    bool inside;               // of such a one
  };

  Network() = default;
  Network(const std::vector<Symbolic>& inputs, const std::vector<Symbolic>& outputs);

  bool built() const { return !calls_.empty(); }
  const std::vector<Shape>& input_shapes() const { return inputs_; }
  const std::vector<std::string>& input_names() const { return input_names_; }
  // Above 0: that input is int32 tokens below it, for the layers that read it.
  int64_t vocabulary(size_t input = 0) const;
  const std::vector<Call>& calls() const { return calls_; }
  std::vector<Place> places() const;
  const std::vector<NetworkWeight>& weights() const { return weights_; }
  const std::vector<int>& output_slots() const { return outputs_; }
  std::vector<Shape> output_shapes() const;
  // Keras's names of outputs: their layers'; counted where one layer has several.
  std::vector<std::string> output_names() const;
  int64_t parameters() const;
  // Takes over what Layer::trainable says now.
  void settle_trainable();
  // By path, or by a name that only one layer has. Throws UserError listing what there is.
  std::shared_ptr<Layer> get_layer(const std::string& name) const;

  // Appends the forward pass to the trace that `inputs` belong to. `weights` as weights(). Where
  // `compute` is narrower than the variables, layers get cast matrices and filters; vectors
  // (biases, scales, statistics) stay as they are: ops add them before they round.
  Tensors call(const Tensors& inputs, const Tensors& weights, bool training,
               const Tensor& step_params, Dtype compute, NetworkNotes* notes = nullptr) const;
  // What is computed in where a layer has a policy of its own: floating inputs are cast to it.
  bool has_policies() const;
  Dtype compute_of(const Call& call, Dtype compute) const {
    return call.layer->dtype ? call.layer->dtype->compute : compute;
  }
  // What an input is to be cast to: the widest that a layer wants.
  Dtype input_compute(size_t input, Dtype compute) const;
  // A weight as its layer gets it, see there.
  Tensor cast_weight(size_t w, const Tensor& weight, Dtype compute) const;

 private:
  std::vector<Shape> inputs_;
  std::vector<std::string> input_names_;
  std::vector<Call> calls_;
  std::vector<int> outputs_;
  std::vector<NetworkWeight> weights_;
};

// Keras's name for a kind of layer: MaxPooling2D to max_pooling2d.
std::string snake_case(const std::string& kind);

// Gives unnamed layers Keras's names: conv2d, conv2d_1, max_pooling2d, ... Throws UserError on a
// name used for two different layers.
void name_layers(const std::vector<std::shared_ptr<Layer>>& layers);

// A chain of layers on one input; names are given first, so that a shape error names the layer, and
// the model before it where that has a name.
// Its symbols go to `inputs` and `outputs`, where these are given.
Network chain(const Shape& input, const std::vector<LayerRef>& layers,
              const std::string& model = "", std::vector<Symbolic>* inputs = nullptr,
              std::vector<Symbolic>* outputs = nullptr);

}  // namespace pl
