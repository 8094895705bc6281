// The bill outside the arena: a deterministic bound of what the process holds besides planned
// memory. The same for `plan` and `train`, cold or warm, since it is computed and never measured.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace pl {

struct FootprintFacts {
  int threads;
  Bytes kernel_bytes;  // of all prepared kernels
  size_t nodes;        // of all graphs
  Bytes source_bytes;  // of the input pipeline
};

Bytes fixed_bytes(const FootprintFacts& facts);

}  // namespace pl
