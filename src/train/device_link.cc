#include "train/device_link.h"

#include <algorithm>

#include "backend/device_work.h"
#include "base/error.h"
#include "train/device_full.h"

namespace pl {

LinkPlaces link_places(const Graph& graph, Bytes alignment) {
  LinkPlaces places;
  auto add = [&](ValueId id, std::vector<Bytes>& at, std::vector<Bytes>& sizes) {
    at.push_back(places.end);
    sizes.push_back(graph.values[index(id)].meta.bytes());
    places.end += align_up(sizes.back(), alignment);
  };
  for (ValueId id : graph.inputs) add(id, places.inputs, places.input_bytes);
  places.input_end = places.end;
  for (ValueId id : graph.keep) {
    const auto input = std::find(graph.inputs.begin(), graph.inputs.end(), id);
    if (input == graph.inputs.end()) {
      add(id, places.kept, places.kept_bytes);
      continue;
    }
    // An input that stays on the device: the host has it already.
    places.kept.push_back(places.inputs[static_cast<size_t>(input - graph.inputs.begin())]);
    places.kept_bytes.push_back(0);
  }
  return places;
}

DeviceLink::DeviceLink(Backend& device, std::vector<const Graph*> graphs, Bytes ahead)
    : device_(device) {
  Bytes most = 0, inputs = 0;
  for (const Graph* graph : graphs) {
    places_.push_back(link_places(*graph, device.alignment()));
    fresh_.emplace_back(places_.back().inputs.size(), false);
    most = std::max(most, places_.back().end);
    inputs = std::max(inputs, places_.back().input_end);
  }
  staging_ = device.reserve_staging(most);
  if (ahead == 0) return;
  check(ahead >= inputs && device_work(device), "room for the next step's inputs");
  ahead_ = reserve_on(device, ahead);
  ahead_staging_ = device.reserve_staging(inputs);
}

void* DeviceLink::input(size_t signature, size_t i) {
  if (ahead_state_ == Ahead::open) {
    ahead_inputs_.resize(places_[signature].inputs.size());
    ahead_inputs_[i] = true;
    return ahead_staging_->data() + places_[signature].inputs[i];
  }
  fresh_[signature][i] = true;
  return staging_->data() + places_[signature].inputs[i];
}

const void* DeviceLink::kept(size_t signature, size_t i) const {
  return staging_->data() + places_[signature].kept[i];
}

void DeviceLink::begin_ahead() {
  device_work(device_)->synchronize_copies();  // what they read is about to be written
  ahead_state_ = Ahead::open;
  ahead_inputs_.clear();
}

void DeviceLink::send_ahead(size_t signature) {
  const LinkPlaces& places = places_[signature];
  DeviceWork& work = *device_work(device_);
  for (size_t i = 0; i < ahead_inputs_.size(); ++i)
    if (ahead_inputs_[i])
      work.copy_beside(ahead_->data() + places.inputs[i], ahead_staging_->data() + places.inputs[i],
                       places.input_bytes[i]);
  ahead_signature_ = signature;
  ahead_state_ = Ahead::sent;
}

void DeviceLink::drop_ahead() {
  if (ahead_state_ == Ahead::sent) device_work(device_)->wait_for_copies();
  ahead_state_ = Ahead::none;
}

void DeviceLink::take_ahead(size_t signature, const Executor& executor) {
  const LinkPlaces &from = places_[ahead_signature_], &to = places_[signature];
  DeviceWork& work = *device_work(device_);
  work.wait_for_copies();
  for (size_t i = 0; i < ahead_inputs_.size(); ++i) {
    if (!ahead_inputs_[i]) continue;
    check(from.input_bytes[i] == to.input_bytes[i], "inputs that were read for such a step");
    device_.copy(executor.input(i), ahead_->data() + from.inputs[i], from.input_bytes[i]);
  }
  work.copies_wait();
  ahead_state_ = Ahead::none;
}

void DeviceLink::send(size_t signature, const Executor& executor) {
  if (ahead_state_ == Ahead::sent) take_ahead(signature, executor);
  const LinkPlaces& places = places_[signature];
  for (size_t i = 0; i < places.inputs.size(); ++i) {
    if (!fresh_[signature][i]) continue;
    device_.copy_in(executor.input(i), staging_->data() + places.inputs[i], places.input_bytes[i]);
    fresh_[signature][i] = false;
  }
}

void DeviceLink::receive(size_t signature, const Executor& executor) {
  const LinkPlaces& places = places_[signature];
  for (size_t k = 0; k < places.kept.size(); ++k)
    device_.copy_out(staging_->data() + places.kept[k], executor.kept(k), places.kept_bytes[k]);
  device_.synchronize();
}

}  // namespace pl
