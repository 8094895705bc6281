// Kernels that take several calls at once: what a step launches many times in a row on small
// operands, such as the updates of all weights, is one launch.
#pragma once

#include <span>

#include "backend/backend.h"

namespace pl {

struct KernelCall {
  Kernel* kernel;
  void* const* in;
  void* const* out;
};

class SeveralKernel : public Kernel {
 public:
  // Whether a call of `other` may stand beside one of this kernel. Such kernels have no workspace.
  virtual bool joins(const Kernel& other) const = 0;
  // Runs calls of kernels that this one joins, in any order: none may read or write what another
  // one writes. The bits are those of one call after the other.
  virtual void run_several(std::span<const KernelCall> calls) = 0;
};

}  // namespace pl
