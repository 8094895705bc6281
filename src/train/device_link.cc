#include "train/device_link.h"

#include <algorithm>

namespace pl {

DeviceLink::DeviceLink(Backend& device, std::vector<const Graph*> graphs) : device_(device) {
  Bytes most = 0;
  for (const Graph* graph : graphs) {
    Places places;
    Bytes end = 0;
    auto add = [&](ValueId id, std::vector<Bytes>& at, std::vector<Bytes>& sizes) {
      at.push_back(end);
      sizes.push_back(graph->values[index(id)].meta.bytes());
      end += align_up(sizes.back(), device.alignment());
    };
    for (ValueId id : graph->inputs) add(id, places.inputs, places.input_bytes);
    for (ValueId id : graph->keep) add(id, places.kept, places.kept_bytes);
    places.fresh.assign(places.inputs.size(), false);
    places_.push_back(std::move(places));
    most = std::max(most, end);
  }
  staging_ = device.reserve_staging(most);
}

void* DeviceLink::input(size_t signature, size_t i) {
  places_[signature].fresh[i] = true;
  return staging_->data() + places_[signature].inputs[i];
}

const void* DeviceLink::kept(size_t signature, size_t i) const {
  return staging_->data() + places_[signature].kept[i];
}

void DeviceLink::send(size_t signature, const Executor& executor) {
  Places& places = places_[signature];
  for (size_t i = 0; i < places.inputs.size(); ++i) {
    if (!places.fresh[i]) continue;
    device_.copy_in(executor.input(i), staging_->data() + places.inputs[i], places.input_bytes[i]);
    places.fresh[i] = false;
  }
}

void DeviceLink::receive(size_t signature, const Executor& executor) {
  const Places& places = places_[signature];
  for (size_t k = 0; k < places.kept.size(); ++k)
    device_.copy_out(staging_->data() + places.kept[k], executor.kept(k), places.kept_bytes[k]);
  device_.synchronize();
}

}  // namespace pl
