// CallTimer: how long prepared calls take on a device, measured on scratch memory of its own before
// anything is planned. A few runs of each call, within a second or two in all.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/device_work.h"
#include "op/op.h"

namespace pl {

class CallTimer {
 public:
  // `room`: bytes of the device that operands may take meanwhile.
  CallTimer(Backend& backend, DeviceWork& work, Bytes room);

  // Nothing where the operands find no room, or the time for all calls is up. Floats are numbers
  // between 1/4 and 1, whole numbers are zero: an index that is valid everywhere.
  std::optional<double> ms(const Op& op, Kernel& kernel, const Metas& in, const Metas& out);

 private:
  void fill(Bytes bytes);

  Backend& backend_;
  DeviceWork& work_;
  Bytes room_;
  double spent_ms_ = 0;
  std::vector<uint16_t> pattern_;         // what operands are filled with
  std::unique_ptr<DeviceMemory> memory_;  // as large as the largest call so far
};

}  // namespace pl
