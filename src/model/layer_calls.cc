#include "model/layer_calls.h"

#include <algorithm>

#include "base/error.h"
#include "model/network.h"
#include "model/remat.h"
#include "model/weight_home.h"
#include "op/cast.h"
#include "op/recorder.h"
#include "op/step_params.h"

namespace pl {
namespace {

// Tokens are integers to the layers that read them, and numbers to layers with weights.
Tensor operand_of(const Layer& layer, size_t i, const Tensor& in, Dtype compute) {
  const bool tokens = layer.vocabulary(i) > 0;
  if (tokens && is_floating(in.dtype())) return cast(in, Dtype::int32);
  const bool integer = in.dtype() == Dtype::int32;
  return integer && !tokens && !layer.weights().empty() ? cast(in, compute) : in;
}

Tensors with_first(const Tensor& first, Tensors more) {
  more.insert(more.begin(), first);
  return more;
}

}  // namespace

Building::Building(FoundLayers& found, Recorder& recorder, const Tensors& inputs)
    : LayerContext(true),
      found_(found),
      recorder_(recorder),
      inputs_(inputs),
      params_(recorder.input("step_params", step_params_meta(), false)),
      random_(params_, 0) {}

Tensors Building::call(const std::shared_ptr<Layer>& layer, const Tensors& given,
                       std::optional<bool> /*training*/) {
  std::vector<Shape> shapes;
  for (const Tensor& tensor : given) {
    if (!tensor.defined() || tensor.shape().rank() < 1)
      throw UserError("[build] " + layer->label() +
                      ": expected tensors with a row for each sample, received " +
                      (tensor.defined() ? tensor.meta().text() : "nothing"));
    shapes.push_back(tensor.shape().without_front());
  }
  const size_t at = place_of(layer);
  try {
    build_layer(*layer, shapes);
  } catch (const UserError& error) {
    throw build_error(layer->name, error);
  }
  Tensors in;
  for (size_t i = 0; i < given.size(); ++i) {
    note_tokens(*layer, i, given[i]);
    in.push_back(operand_of(*layer, i, given[i], Dtype::float32));
  }
  Tensors weights, more;
  for (const Weight& weight : layer->weights())
    weights.push_back(recorder_.variable(layer->name + "/" + weight.name + std::to_string(calls_),
                                         {Dtype::float32, weight.shape}, Category::parameters));
  const PathScope scope(&recorder_, layer->name);
  ++calls_;
  LayerCall made{in, weights, false, params_, 0};
  made.more = &more;
  const Tensor out = run_layer(*layer, made);
  found_.shapes[at] = out.shape().without_front();
  return with_first(out, std::move(more));
}

size_t Building::place_of(const std::shared_ptr<Layer>& layer) {
  auto& layers = found_.layers;
  const auto found = std::find(layers.begin(), layers.end(), layer);
  if (found != layers.end()) return static_cast<size_t>(found - layers.begin());
  layers.push_back(layer);
  name_layers(layers);
  found_.shapes.emplace_back();
  return layers.size() - 1;
}

void Building::note_tokens(const Layer& layer, size_t i, const Tensor& given) {
  const int64_t count = layer.vocabulary(i);
  for (size_t x = 0; x < inputs_.size() && count > 0; ++x) {
    if (given.identity() != inputs_[x].identity()) continue;
    int64_t& known = found_.vocabulary[x];
    known = known == 0 ? count : std::min(known, count);
  }
}

Calling::Calling(const std::vector<std::shared_ptr<Layer>>& layers, const std::string& name,
                 const LayerCall& outer, Recorder* recorder, size_t first)
    : layers_(layers), name_(name), outer_(outer), recorder_(recorder), first_(first) {
  for (size_t i = 0; i < outer.in.size(); ++i)
    masks_.emplace(outer.in[i].identity(), outer.mask(i));
}

Tensors Calling::call(const std::shared_ptr<Layer>& layer, const Tensors& given,
                      std::optional<bool> training) {
  size_t first = first_;
  for (const auto& known : layers_) {
    if (known == layer) return call_at(*layer, first, given, training);
    first += known->weights().size();
  }
  throw UserError("[call] " + layer->label() +
                  ": expected a layer that call() used when the model was built; use the same "
                  "layers whatever the data");
}

Tensor Calling::mask_of(const Tensor& tensor) const {
  const auto found = masks_.find(tensor.identity());
  return found == masks_.end() ? Tensor() : found->second;
}

Tensors Calling::call_at(const Layer& layer, size_t first, const Tensors& given,
                         std::optional<bool> training) {
  const PathScope scope(recorder_, layer.name);
  const Tensors in = cast_inputs(layer, given);
  Tensors masks, more, result_masks;
  for (const Tensor& tensor : given) masks.push_back(mask_of(tensor));
  const RematActivations activations(layer);
  const std::string call = name_ + layer.name + "#" + std::to_string(calls_++);
  const LayerCall made{
      .in = in,
      .weights = outer_.weights.subspan(first, layer.weights().size()),
      .training = training.value_or(outer_.training),
      .step_params = outer_.step_params,
      .stream = random_stream(layer, call, counts_.next(layer)),
      .trainable = outer_.trainable && layer.trainable,
      .masks = masks,
      .more = &more,
      .result_masks = &result_masks,
      .losses = outer_.losses,
      .compute = layer.dtype ? layer.dtype->compute : outer_.compute,
  };
  const Tensor out = run_layer(layer, made);
  if (result_masks.empty()) result_masks = {layer.compute_mask(made)};
  Tensors results = with_first(out, std::move(more));
  for (size_t r = 0; r < results.size() && r < result_masks.size(); ++r)
    masks_[results[r].identity()] = result_masks[r];
  add_activity_loss(layer, out, outer_.losses);
  return results;
}

// To what a layer computes in, where some of them have a policy of their own.
Tensors Calling::cast_inputs(const Layer& layer, const Tensors& in) const {
  const bool policies = std::any_of(layers_.begin(), layers_.end(),
                                    [](const auto& known) { return known->dtype.has_value(); });
  const Dtype compute = layer.dtype ? layer.dtype->compute : outer_.compute;
  Tensors cast_in;
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor operand = operand_of(layer, i, in[i], compute);
    const bool casts = policies && is_floating(operand.dtype());
    cast_in.push_back(casts ? cast(operand, compute) : operand);
  }
  return cast_in;
}

}  // namespace pl
