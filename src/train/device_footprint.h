// The bill of a device's memory outside the arena. Context and libraries
// are measured, since they are there when a plan is made; code that is loaded and graphs that are
// recorded later are bounds.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace pl {

struct DeviceFacts {
  Bytes held = 0;       // by this process before anything is reserved: context, handles
  Bytes loaded = 0;     // since then: code of calls that were timed
  size_t kernels = 0;   // distinct calls
  size_t launches = 0;  // of all recorded steps
  Bytes arena = 0;
  Bytes apart = 0;    // of the arena: variables with a reservation of their own
  Bytes mapped = 0;   // of the host's memory, which kernels reach
  Bytes granule = 1;  // of reservations
};
Bytes device_fixed_bytes(const DeviceFacts& facts);
Bytes recording_bytes(size_t launches);  // of one recorded step alone

}  // namespace pl
