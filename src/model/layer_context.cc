#include "model/layer_context.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "model/network.h"
#include "model/remat.h"
#include "op/cast.h"
#include "op/recorder.h"
#include "op/step_params.h"

namespace pl {
namespace {

thread_local LayerContext* current_context = nullptr;

constexpr Dim kBatch = 2;  // of the symbols with which layers are found

int64_t stream_of(const std::string& name, size_t call) {
  return static_cast<int64_t>(xxh3(name + "#" + std::to_string(call)) >> 1);
}

}  // namespace

LayerContext::LayerContext() : previous_(current_context) { current_context = this; }
LayerContext::~LayerContext() { current_context = previous_; }
LayerContext* LayerContext::current() { return current_context; }

// Builds each layer for the shapes it is called with.
class FunctionLayer::Building final : public LayerContext {
 public:
  Building(FunctionLayer& owner, Recorder& recorder)
      : owner_(owner),
        recorder_(recorder),
        params_(recorder.input("step_params", step_params_meta(), false)) {}

  Tensor call(const std::shared_ptr<Layer>& layer, const Tensors& in,
              std::optional<bool> /*training*/) override {
    std::vector<Shape> shapes;
    for (const Tensor& tensor : in) shapes.push_back(tensor.shape().without_front());
    auto& layers = owner_.layers_;
    if (std::find(layers.begin(), layers.end(), layer) == layers.end()) {
      layers.push_back(layer);
      name_layers(layers);
      owner_.shapes_.emplace_back();
    }
    if (!layer->activity_regularizer.empty())
      throw UserError(layer->name +
                      ": expected no activity_regularizer on a layer that call() uses, received '" +
                      layer->activity_regularizer +
                      "'; build the model from Input() symbols, or add the penalty in train_step");
    try {
      layer->build(shapes);
    } catch (const UserError& error) {
      throw UserError(layer->name + ": " + error.what());
    }
    Tensors weights;
    for (const Weight& weight : layer->weights())
      weights.push_back(recorder_.variable(layer->name + "/" + weight.name + std::to_string(calls_),
                                           {in[0].dtype(), weight.shape}, Category::parameters));
    const PathScope scope(&recorder_, layer->name);
    const auto at = std::find(layers.begin(), layers.end(), layer) - layers.begin();
    Shape& shape = owner_.shapes_[static_cast<size_t>(at)];
    const Tensor out = layer->call({in, weights, false, params_, stream_of(layer->name, calls_++)});
    shape = out.shape().without_front();
    return out;
  }

 private:
  FunctionLayer& owner_;
  Recorder& recorder_;
  Tensor params_;
  size_t calls_ = 0;
};

// Hands each layer its part of the weights.
class FunctionLayer::Calling final : public LayerContext {
 public:
  Calling(const FunctionLayer& owner, const LayerCall& outer, Recorder* recorder)
      : owner_(owner), outer_(outer), recorder_(recorder) {
    masks_.emplace(outer.in[0].identity(), outer.mask(0));
  }

  Tensor call(const std::shared_ptr<Layer>& layer, const Tensors& given,
              std::optional<bool> training) override {
    size_t first = 0;
    for (const auto& known : owner_.layers_) {
      const size_t count = known->weights().size();
      if (known == layer) {
        const PathScope scope(recorder_, layer->name);
        const Tensors in = cast_inputs(*layer, given);
        Tensors masks;
        for (const Tensor& tensor : given) masks.push_back(mask_of(tensor));
        const RematActivations activations(*layer);
        const LayerCall made{in,
                             outer_.weights.subspan(first, count),
                             training.value_or(outer_.training),
                             outer_.step_params,
                             stream_of(owner_.name + layer->name, calls_++),
                             outer_.trainable && layer->trainable,
                             masks};
        const Tensor out = layer->call(made);
        masks_[out.identity()] = layer->compute_mask(made);
        return out;
      }
      first += count;
    }
    throw UserError("[call] " + layer->name +
                    ": expected a layer that call() used when the model was built; use the same "
                    "layers whatever the data");
  }

 private:
  // Masks go from layer to layer, as in a network; what is computed between them has none.
  Tensor mask_of(const Tensor& tensor) const {
    const auto found = masks_.find(tensor.identity());
    return found == masks_.end() ? Tensor() : found->second;
  }

  // To what a layer computes in, where some of them have a policy of their own.
  Tensors cast_inputs(const Layer& layer, const Tensors& in) const {
    const bool policies = std::any_of(owner_.layers_.begin(), owner_.layers_.end(),
                                      [](const auto& known) { return known->dtype.has_value(); });
    const Dtype outer = outer_.in[0].dtype();
    if (!policies || (!layer.dtype && !is_floating(outer))) return in;
    Tensors cast_in;
    for (const Tensor& tensor : in)
      cast_in.push_back(is_floating(tensor.dtype())
                            ? cast(tensor, layer.dtype ? layer.dtype->compute : outer)
                            : tensor);
    return cast_in;
  }

  const FunctionLayer& owner_;
  const LayerCall& outer_;
  Recorder* recorder_;
  std::map<int64_t, Tensor> masks_;  // by the tensors' identities
  size_t calls_ = 0;
};

FunctionLayer::FunctionLayer(std::string kind, std::function<Body()> body)
    : kind_(std::move(kind)), body_(std::move(body)) {}

Shape FunctionLayer::build(const std::vector<Shape>& in) {
  if (in.size() != 1) throw UserError("expected one input");
  Recorder recorder;
  const RecorderScope scope(recorder);
  const Tensor x = recorder.input("x", {Dtype::float32, in[0].with_front(kBatch)}, true);
  layers_.clear();
  shapes_.clear();
  Tensor y;
  {
    Building building(*this, recorder);
    y = body_()(x, false);
  }
  if (!y.is_symbol() || y.shape().rank() < 1 || y.shape()[0] != kBatch)
    throw UserError("expected call() to answer a tensor with a row for each sample, received " +
                    (y.defined() ? y.meta().text() : "nothing"));
  weights_.clear();
  for (const auto& layer : layers_)
    for (const Weight& weight : layer->weights()) {
      weights_.push_back(weight);
      weights_.back().name = layer->name + "/" + weight.name;
      if (layer->dtype) weights_.back().dtype = layer->dtype;
    }
  return y.shape().without_front();
}

Tensor FunctionLayer::call(const LayerCall& call) const {
  Calling calling(*this, call, call.in[0].recorder());
  return body_()(call.in[0], call.training);
}

}  // namespace pl
