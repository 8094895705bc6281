#include "train/variables.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "model/initializer.h"

namespace pl {

Bytes weight_bytes(const VariableLayout& layout) {
  for (const auto& entry : layout.entries)
    if (entry.category != Category::parameters) return entry.at;
  return layout.bytes;
}

Variables::Variables(VariableLayout layout, Bytes capacity)
    : layout_(std::move(layout)), memory_(std::max(capacity, layout_.bytes)) {
  memory_.prefault(layout_.bytes);
}

Variables::Variables(VariableLayout layout, Bytes arena, Backend& device)
    : layout_(std::move(layout)),
      device_(device.on_host() ? nullptr : &device),
      device_memory_(device.reserve(arena)) {
  check(device_ != nullptr, "memory of a device");
}

char* Variables::data() const { return device_ ? device_memory_->data() : memory_.data(); }

void* Variables::at(size_t i) const {
  if (!device_) return memory_.data() + layout_.entries[i].at;
  if (!copy_.data() && layout_.bytes > 0) {
    copy_ = Reservation(layout_.bytes);
    device_->copy_out(copy_.data(), device_memory_->data(), layout_.bytes);
    device_->synchronize();
  }
  return copy_.data() + layout_.entries[i].at;
}

void Variables::written() {
  if (!device_ || !copy_.data()) return;
  device_->copy_in(device_memory_->data(), copy_.data(), layout_.bytes);
  device_->synchronize();
}

void Variables::stepped() {
  if (device_ && copy_.data()) copy_ = Reservation();
}

void Variables::initialize(const Network& network, uint64_t seed) {
  if (device_) copy_ = Reservation(layout_.bytes);  // nothing there is worth copying down
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const auto& entry = layout_.entries[i];
    std::string initializer = "zeros";
    const void* existing = nullptr;
    for (const NetworkWeight& weight : network.weights()) {
      if (weight.path != entry.path) continue;
      initializer = weight.initializer;
      if (weight.values)
        existing = weight.values->find(*weight.layer, weight.index, entry.meta.dtype);
    }
    if (existing) {
      std::memcpy(at(i), existing, static_cast<size_t>(entry.meta.bytes()));
    } else {
      pl::initialize(initializer, entry.meta, seed, entry.path, at(i));
    }
  }
  written();
}

void Variables::set_slot(const std::string& path, double value) {
  bool found = false;
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const auto& entry = layout_.entries[i];
    if (entry.path != path) continue;
    found = true;
    const int64_t count = entry.meta.elements();
    if (entry.meta.dtype == Dtype::float64)
      std::fill_n(static_cast<double*>(at(i)), count, value);
    else
      std::fill_n(static_cast<float*>(at(i)), count, static_cast<float>(value));
  }
  if (found) written();
}

void Variables::adopt(const VariableLayout& layout) {
  check(on_host(), "a layout that grows is the host's");
  const Bytes weights = weight_bytes(layout_);
  for (const auto& entry : layout_.entries) {
    if (entry.category != Category::parameters) break;
    const auto* same = layout.find(entry.path);
    check(same && same->meta == entry.meta && same->at == entry.at,
          "layouts of one network must agree on its weights");
  }
  check(weight_bytes(layout) == weights, "layouts of one network must agree on its weights");
  if (layout.bytes <= memory_.bytes()) {
    std::memset(data() + weights, 0, static_cast<size_t>(layout_.bytes - weights));
    memory_.discard(layout.bytes);
    memory_.prefault(layout.bytes);
  } else {
    Reservation larger(layout.bytes);
    larger.prefault();
    std::memcpy(larger.data(), data(), static_cast<size_t>(weights));
    memory_ = std::move(larger);
  }
  layout_ = layout;
}

uint64_t Variables::hash(bool weights_only) const {
  Xxh3 hash;
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const auto& entry = layout_.entries[i];
    if (weights_only && entry.category != Category::parameters) continue;
    hash.update(at(i), static_cast<size_t>(entry.meta.bytes()));
  }
  return hash.digest();
}

namespace {

template <class T>
bool all_finite(const void* data, int64_t count) {
  const T* values = static_cast<const T*>(data);
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(values[i])) return false;
  return true;
}

}  // namespace

std::string Variables::first_non_finite() const {
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const auto& [path, meta, category, offset] = layout_.entries[i];
    const int64_t count = meta.elements();
    const bool finite = meta.dtype == Dtype::float32   ? all_finite<float>(at(i), count)
                        : meta.dtype == Dtype::float64 ? all_finite<double>(at(i), count)
                                                       : true;
    if (!finite) return path;
  }
  return "";
}

}  // namespace pl
