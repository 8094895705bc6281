// Where memory lives and kernels run.
#pragma once

#include <cstdint>

namespace pl {

enum class DeviceKind : uint8_t { cpu, cuda, null };
inline constexpr int kDeviceKinds = 3;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

}  // namespace pl
