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

// By what it is for. Workspaces of libraries are in the arena.
struct DeviceBill {
  Bytes context = 0;      // measured: context, libraries and their handles, and what else is held
  Bytes code = 0;         // a bound: kernels that are loaded later, and their local memory
  Bytes recordings = 0;   // a bound: recorded steps
  Bytes page_tables = 0;  // for the host's memory that kernels reach
  Bytes rounding = 0;     // of all that to what the driver gives memory in, and of the arena
  Bytes sum() const { return context + code + recordings + page_tables + rounding; }
};
DeviceBill device_bill(const DeviceFacts& facts);
Bytes recording_bytes(size_t launches);  // of one recorded step alone

}  // namespace pl
