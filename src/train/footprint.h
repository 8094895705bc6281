// The bill outside the arena: a deterministic bound of what the process holds besides planned
// memory. The same for `plan` and `train`, cold or warm, since it is computed and never measured.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "train/device_footprint.h"

namespace pl {

struct FootprintFacts {
  int threads = 1;
  bool library = false;       // some kernel runs oneDNN's code
  size_t convolutions = 0;    // directions and types of its convolutions: each has code of its own
  size_t backward_data = 0;   // of these
  size_t kinds = 0;           // distinct ops: each brings pages of our own code
  Bytes kernel_bytes = 0;     // of all prepared kernels
  size_t nodes = 0;           // of all graphs
  size_t fused_nodes = 0;     // that were traced and are part of others now
  Bytes transient_bytes = 0;  // the most a library takes from the heap within one kernel
  bool narrow_simd = false;   // oneDNN has no AVX-512 here and runs other code
  Bytes source_bytes = 0;     // of the input pipeline and the loop
  bool by_page = false;       // pages of code come one by one, see backend/cpu/code_pages.h
  Bytes arena = 0;
};

struct Footprint {
  Bytes fixed = 0;         // beside the arena
  Bytes idle = 0;          // of it: only the program's start needs it, and training may hold it
  DeviceBill device = {};  // what `fixed` is the sum of, on a device
};
Footprint footprint(const FootprintFacts& facts);

}  // namespace pl
