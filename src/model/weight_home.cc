#include "model/weight_home.h"

#include <algorithm>

#include "base/error.h"
#include "model/layer_context.h"

namespace pl {

WeightHome::WeightHome() : variable(std::make_shared<VariableState>()) {
  variable->place = [own = variable.get()]() -> void* {
    throw UserError("[variable] " + own->name +
                    ": expected weights that exist, received one of a model that was not used yet");
  };
}

const void* WeightHome::find(const Layer& layer, size_t index, Dtype dtype) const {
  if (!exists()) return nullptr;
  if (variable->meta.dtype != dtype)
    throw UserError("[build] " + layer.label() + "/" + layer.weights().at(index).name +
                    ": expected " + std::string(name_of(dtype)) +
                    ", the model's dtype, received weights of " + variable->meta.text() +
                    ", which another model uses");
  return variable->current().data();
}

void WeightHome::move(std::shared_ptr<const void> keeper, std::function<void*()> place,
                      std::shared_ptr<DeviceSpace> space) const {
  if (exists()) detach_readers();
  variable->value = Tensor();
  variable->keeper = std::move(keeper);
  variable->place = std::move(place);
  variable->space = std::move(space);
}

void WeightHome::detach_readers() const {
  if (!variable->value.defined()) return;
  variable->writable();
  variable->wrote();
}

namespace {

// What a layer added in a second build under names that it has: the same weights.
void drop_repeated(std::vector<Weight>& weights, size_t before) {
  for (size_t w = weights.size(); w-- > before;) {
    const auto known =
        std::find_if(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(before),
                     [&](const Weight& weight) { return weight.name == weights[w].name; });
    if (known == weights.begin() + static_cast<std::ptrdiff_t>(before)) continue;
    if (known->shape != weights[w].shape)
      throw UserError("expected " + known->name + " of shape " + known->shape.text() +
                      " as in its first call, received " + weights[w].shape.text());
    weights.erase(weights.begin() + static_cast<std::ptrdiff_t>(w));
  }
}

}  // namespace

Shape build_layer(Layer& layer, const std::vector<Shape>& in) {
  const size_t before = layer.own_weights();
  std::vector<Weight> weights = layer.exchange_weights({});
  weights.resize(before);
  layer.set_parts({});
  layer.exchange_weights(std::move(weights));
  Shape out = layer.build(in);
  weights = layer.exchange_weights({});
  drop_repeated(weights, before);
  for (Weight& weight : weights)
    if (!weight.owner && !weight.values) weight.values = std::make_shared<WeightHome>();
  layer.exchange_weights(std::move(weights));
  if (layer.calls_layers() && layer.members().empty()) find_parts(layer, in);
  return out;
}

}  // namespace pl
