// Devices by name, as pl::device and compile() know them. One of a name is open at a time among
// those who share a Devices, whichever kernels they choose (DeviceSpace::backend_for), so that what
// they ask of it is done in one order; the last one closes it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "tensor/device_space.h"

namespace pl {

// "cpu", "cuda", "cuda:1", or as TensorFlow writes them: "/CPU:0", "GPU:0", "/device:GPU:0". Throws
// UserError for others. `option`: how the caller calls it, in that error.
Device device_from_name(const std::string& name, const char* option = "device");
std::string name_of(const Device& device);  // "cpu", "cuda:0"

// Those that are open. It lives as long as one of them, or whoever made it.
class Devices : public std::enable_shared_from_this<Devices> {
 public:
  // This thread's: the one of the devices that its Runtimes, models and values use, while any of
  // them does; else a new one.
  static std::shared_ptr<Devices> current();

  // Null: the processor. Throws UserError where this machine has no such device.
  std::shared_ptr<DeviceSpace> open(const Device& device);
  // Lets others find an open backend under a device's name for as long as the answer lives: tests
  // of what is built on it.
  std::shared_ptr<DeviceSpace> share(const Device& device, std::shared_ptr<Backend> backend);

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<DeviceSpace>> spaces_;
};

}  // namespace pl
