#include "model/weight_home.h"

#include "base/error.h"

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

Shape build_layer(Layer& layer, const std::vector<Shape>& in) {
  Shape out = layer.build(in);
  std::vector<Weight> weights = layer.exchange_weights({});
  for (Weight& weight : weights)
    if (!weight.owner && !weight.values) weight.values = std::make_shared<WeightHome>();
  layer.exchange_weights(std::move(weights));
  return out;
}

}  // namespace pl
