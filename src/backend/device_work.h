// What a device does beyond a Backend's kernels and copies, for those who time its work.
#pragma once

#include <functional>

#include "backend/backend.h"

namespace pl {

class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  // How long the device is busy with what `work` asks for; waits for it.
  virtual double time_ms(const std::function<void()>& work) = 0;
};

// Null: the backend has none.
inline DeviceWork* device_work(Backend& backend) { return dynamic_cast<DeviceWork*>(&backend); }

}  // namespace pl
