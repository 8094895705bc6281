#include "train/variables.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/hash.h"
#include "train/device_full.h"

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

Variables::Variables(VariableLayout layout, Bytes arena, Backend& device, Bytes host)
    : layout_(std::move(layout)),
      device_(device.on_host() ? nullptr : &device),
      device_memory_(reserve_on(device, arena - host)),
      pinned_(host > 0 ? device.reserve_staging(host) : nullptr) {
  check(device_ != nullptr, "memory of a device");
}

// Where they had no room when they moved last, and wait on the host.
void Variables::settle() const {
  if (!device_ || device_memory_) return;
  device_memory_ = reserve_on(*device_, layout_.bytes);
  device_->copy_in(device_memory_->data(), copy_.data(), layout_.bytes);
  device_->synchronize();
}

char* Variables::place(size_t i) const {
  settle();
  const ByteOffset at = layout_.entries[i].at;
  return at < on_device() ? data() + at : pinned_->data() + (at - on_device());
}

char* Variables::steps() const { return data() + on_device(); }

void Variables::clear() {
  device_->zero(device_memory_->data(), device_memory_->bytes());
  device_->synchronize();
  constexpr Bytes kPart = 8 * kMiB;
  const Bytes bytes = pinned_bytes();
#pragma omp parallel for schedule(static)
  for (Bytes at = 0; at < bytes; at += kPart)
    std::memset(pinned_->data() + at, 0, static_cast<size_t>(std::min(kPart, bytes - at)));
}

char* Variables::data() const {
  if (!device_) return memory_.data();
  return device_memory_ ? device_memory_->data() : nullptr;
}

void* Variables::at(size_t i) const {
  if (!device_) return memory_.data() + layout_.entries[i].at;
  if (!copy_.data() && layout_.bytes > 0) {
    copy_ = Reservation(layout_.bytes);
    device_->copy_out(copy_.data(), device_memory_->data(), on_device());
    device_->synchronize();
    if (pinned_)
      std::memcpy(copy_.data() + on_device(), pinned_->data(), static_cast<size_t>(pinned_bytes()));
  }
  return copy_.data() + layout_.entries[i].at;
}

void Variables::written(Bytes first) {
  if (!device_memory_ || !copy_.data()) return;
  device_->copy_in(device_memory_->data(), copy_.data(), std::min(first, on_device()));
  device_->synchronize();
  if (first > on_device())
    std::memcpy(pinned_->data(), copy_.data() + on_device(),
                static_cast<size_t>(first - on_device()));
}

void Variables::stepped() {
  if (device_memory_ && copy_.data()) copy_ = Reservation();
}

namespace {

// Where the host finds the values that a weight has already; null: none.
const void* existing_values(const Network& network, const VariableLayout::Entry& entry) {
  for (const NetworkWeight& weight : network.weights())
    if (weight.path == entry.path && weight.values)
      return weight.values->find(*weight.layer, weight.index, entry.meta.dtype);
  return nullptr;
}

// One weight's elements of the range.
void initialize_one(const Network& network, uint64_t seed, const VariableLayout::Entry& entry,
                    void* to, const void* existing, ElementRange range = {}) {
  std::string initializer = "zeros";
  for (const NetworkWeight& weight : network.weights())
    if (weight.path == entry.path) initializer = weight.initializer;
  if (!existing)
    initialize_part(initializer, entry.meta, seed, entry.path, to, range);
  else if (range.first == 0)
    std::memcpy(to, existing, static_cast<size_t>(entry.meta.bytes()));
}

}  // namespace

void Variables::initialize(const Network& network, uint64_t seed) {
  if (device_) return send_weights(make_weights(layout_, network, seed));
  for (size_t i = 0; i < layout_.entries.size(); ++i)
    initialize_one(network, seed, layout_.entries[i], at(i),
                   existing_values(network, layout_.entries[i]));
}

void Variables::send_weights(MadeWeights weights) {
  check(weights.layout == layout_.bytes, "weights of this layout");
  copy_ = std::move(weights.memory);
  written(weights.made);
}

MadeWeights make_weights(const VariableLayout& layout, const Network& network, uint64_t seed) {
  MadeWeights result{Reservation(layout.bytes), layout.bytes};
  size_t weights = layout.entries.size();
  auto is_weight = [&](const std::string& path) {
    return std::any_of(network.weights().begin(), network.weights().end(),
                       [&](const NetworkWeight& weight) { return weight.path == path; });
  };
  while (weights > 0 && !is_weight(layout.entries[weights - 1].path)) --weights;
  constexpr int64_t kPart = 1 << 18;
  std::vector<std::pair<size_t, ElementRange>> parts;
  std::vector<const void*> existing;
  for (size_t i = 0; i < weights; ++i)
    existing.push_back(existing_values(network, layout.entries[i]));
  for (size_t i = 0; i < weights; ++i)
    for (int64_t first = 0; first < layout.entries[i].meta.elements(); first += kPart)
      parts.push_back({i, {first, first + kPart}});
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
  for (size_t p = 0; p < parts.size(); ++p) {
    try {
      const auto& [i, range] = parts[p];
      initialize_one(network, seed, layout.entries[i], result.memory.data() + layout.entries[i].at,
                     existing[i], range);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  result.made = weights < layout.entries.size() ? layout.entries[weights].at : layout.bytes;
  return result;
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

// Values wait on the host for the new reservations, in one copy with room for either layout. What
// does not fit leaves them as they were.
void Variables::adopt_on_device(const VariableLayout& layout, Bytes host, Bytes kept) {
  settle();
  const Bytes before = device_memory_->bytes(), pinned_before = pinned_bytes();
  const Bytes old_bytes = layout_.bytes;
  if (copy_.bytes() < std::max(old_bytes, layout.bytes)) {
    copy_ = Reservation();  // before the next: the device has the values
    Reservation next(std::max(old_bytes, layout.bytes));
    device_->copy_out(next.data(), device_memory_->data(), on_device());
    device_->synchronize();
    if (pinned_)
      std::memcpy(next.data() + on_device(), pinned_->data(), static_cast<size_t>(pinned_before));
    copy_ = std::move(next);
  }
  auto reserve = [&](Bytes bytes, Bytes pinned) {
    device_memory_.reset();
    pinned_.reset();
    device_memory_ = reserve_on(*device_, bytes);
    if (pinned > 0) pinned_ = device_->reserve_staging(pinned);
  };
  if (layout.bytes - host != before || host != pinned_before) try {
      reserve(layout.bytes - host, host);
    } catch (...) {
      try {
        reserve(before, pinned_before);
        written();
      } catch (const Error&) {  // somebody else was quicker: they wait on the host
        device_memory_.reset();
        pinned_.reset();
      }
      throw;
    }
  if (kept < old_bytes) std::memset(copy_.data() + kept, 0, static_cast<size_t>(old_bytes - kept));
  layout_ = layout;
  written();
}

void Variables::pin(Bytes host) {
  settle();
  if (host != pinned_bytes()) adopt_on_device(layout_, host, layout_.bytes);
}

void Variables::adopt(const VariableLayout& layout, Bytes host) {
  const Bytes weights = weight_bytes(layout_);
  for (const auto& entry : layout_.entries) {
    if (entry.category != Category::parameters) break;
    const auto* same = layout.find(entry.path);
    check(same && same->meta == entry.meta && same->at == entry.at,
          "layouts of one network must agree on its weights");
  }
  check(weight_bytes(layout) == weights, "layouts of one network must agree on its weights");
  if (device_) return adopt_on_device(layout, host, weights);
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

double Variables::number(size_t i) const {
  const Dtype dtype = layout_.entries[i].meta.dtype;
  double wide = 0;
  float narrow = 0;
  void* to = dtype == Dtype::float64 ? static_cast<void*>(&wide) : &narrow;
  const auto bytes = static_cast<size_t>(size_of(dtype));
  if (!device_ || pinned_) {
    std::memcpy(to, at(i), bytes);
  } else {
    device_->copy_out(to, place(i), static_cast<Bytes>(bytes));
    device_->synchronize();
  }
  return dtype == Dtype::float64 ? wide : static_cast<double>(narrow);
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
