#include "backend/devices.h"

#include <algorithm>
#include <charconv>

#include "backend/cuda/cuda_library.h"
#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kPage = 2 * kMiB;  // what a GPU's memory is mapped in

class BackendSpace final : public DeviceSpace {
 public:
  BackendSpace(std::shared_ptr<Backend> backend, std::string name, std::shared_ptr<Devices> among)
      : DeviceSpace(*backend, std::move(name)),
        own_(std::move(backend)),
        among_(std::move(among)) {}

  Backend& backend_for(bool deterministic) override {
    if (deterministic) return *own_;
    const std::lock_guard lock(mutex_);
    if (!fastest_) fastest_ = own_->choosing(false);
    return fastest_ ? *fastest_ : *own_;
  }
  Bytes page() const override { return std::max(kPage, own_->granule()); }
  Bytes alignment() const override { return own_->alignment(); }
  void* map(Bytes bytes) override try {
    auto memory = own_->reserve(bytes);
    void* data = memory->data();
    const std::lock_guard lock(mutex_);
    pages_.emplace(data, std::move(memory));
    return data;
  } catch (const DeviceFault&) {
    throw;  // of an op before; there may be room
  } catch (const std::exception&) {
    return nullptr;
  }
  std::string room() const noexcept override try {
    return format_bytes(own_->free()) + " are free" + own_->holders();
  } catch (const std::exception&) {
    return "";
  }
  void unmap(void* data, Bytes) noexcept override {
    std::unique_ptr<DeviceMemory> gone;
    const std::lock_guard lock(mutex_);
    const auto at = pages_.find(data);
    if (at == pages_.end()) return;
    gone = std::move(at->second);
    pages_.erase(at);
  }
  void read(void* to, const void* from, Bytes bytes) override {
    try {
      own_->copy_out(to, from, bytes);
      own_->synchronize();
    } catch (const DeviceFault& fault) {
      throw BackendError("[device] " + name() + ": expected values of ops that end, received " +
                         fault.what() + kFaultRemedy);
    }
  }
  // Memory of values is not pinned: a GPU's driver has read it when the call returns.
  void write(void* to, const void* from, Bytes bytes) override { own_->copy_in(to, from, bytes); }
  void copy(void* to, const void* from, Bytes bytes) override { own_->copy(to, from, bytes); }

 private:
  std::shared_ptr<Backend> own_;
  std::shared_ptr<Devices> among_;
  std::mutex mutex_;                  // values die on any thread
  std::unique_ptr<Backend> fastest_;  // with kernels that need not give the same bits again
  std::map<void*, std::unique_ptr<DeviceMemory>> pages_;
};

thread_local std::weak_ptr<Devices> current_devices;

std::string lower(const std::string& text) {
  std::string result;
  for (char c : text) result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

}  // namespace

Device device_from_name(const std::string& name, const char* option) {
  std::string text = lower(name);
  for (const char* prefix : {"/device:", "/"})
    if (text.starts_with(prefix)) text.erase(0, std::string(prefix).size());
  Device device;
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon),
                    digits = colon == std::string::npos ? "0" : text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  if (kind == "cuda" || kind == "gpu") device.kind = DeviceKind::cuda;
  const bool known = kind == "cpu" ? device.index == 0 : device.kind == DeviceKind::cuda;
  if (!number || !known || device.index < 0)
    throw UserError("[device] " + std::string(option) +
                    ": expected \"cpu\", \"cuda\" or \"cuda:1\", received '" + name + "'");
  return device;
}

std::string name_of(const Device& device) {
  return device.kind == DeviceKind::cuda ? "cuda:" + std::to_string(device.index) : "cpu";
}

std::shared_ptr<Devices> Devices::current() {
  std::shared_ptr<Devices> found = current_devices.lock();
  if (!found) current_devices = found = std::make_shared<Devices>();
  return found;
}

std::shared_ptr<DeviceSpace> Devices::open(const Device& device) {
  if (device.kind == DeviceKind::cpu) return nullptr;
  const std::lock_guard lock(mutex_);
  std::weak_ptr<DeviceSpace>& place = spaces_[name_of(device)];
  if (auto living = place.lock()) return living;
  std::shared_ptr<Backend> backend;
  try {
    backend = open_cuda(device.index);
  } catch (const UserError& error) {
    throw UserError("[device] " + name_of(device) + ": " + error.what() +
                    " (in C++: pl::device(\"cpu\"), compile({.device = \"cpu\"}))");
  }
  auto made =
      std::make_shared<BackendSpace>(std::move(backend), name_of(device), shared_from_this());
  place = made;
  return made;
}

std::shared_ptr<DeviceSpace> Devices::share(const Device& device,
                                            std::shared_ptr<Backend> backend) {
  const std::lock_guard lock(mutex_);
  auto made =
      std::make_shared<BackendSpace>(std::move(backend), name_of(device), shared_from_this());
  spaces_[name_of(device)] = made;
  return made;
}

}  // namespace pl
