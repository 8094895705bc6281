// The library's matmul as a kernel, for every op that is one product through it.
#pragma once

#include "backend/cpu/onednn.h"

namespace pl::cpu {

// Inputs a, b, [bias]; output c. `relu` (may be null) runs behind the primitive: the library's own
// would turn NaN into 0.
std::unique_ptr<Kernel> matmul_kernel(OnednnCall call, bool bias = false,
                                      std::unique_ptr<Kernel> relu = nullptr);

}  // namespace pl::cpu
