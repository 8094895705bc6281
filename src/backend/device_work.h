// What a device does beyond a Backend's kernels and copies, for those who record and time its work.
#pragma once

#include <functional>

#include "backend/backend.h"

namespace pl {

class DeviceWork {
 public:
  virtual ~DeviceWork() = default;

  // While work is recorded it may be put on several lanes, which run side by side: what is asked for
  // next goes to the lane in use, in order; it goes on behind a mark of another lane once it waited
  // for that. Recording begins on lane 0 and ends when all lanes have.
  virtual int lanes() const = 0;
  virtual void use_lane(int lane) = 0;
  virtual int mark() = 0;  // behind what the lane in use has so far
  virtual void wait(int mark) = 0;

  // How long the device is busy with what `work` asks for; waits for it.
  virtual double time_ms(const std::function<void()>& work) = 0;
};

// Null: the backend has none.
inline DeviceWork* device_work(Backend& backend) { return dynamic_cast<DeviceWork*>(&backend); }

}  // namespace pl
