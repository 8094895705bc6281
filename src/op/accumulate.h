// accumulate: a running sum that lives outside the step's own bytes, such as the gradients of a
// batch that is worked off in pieces; and what ops share that add what they sum themselves.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kAccumulate;

// sum + term, the sum's next version.
Tensor accumulate(const Tensor& sum, const Tensor& term);

// An op whose outputs from `first` on, `sums` of them, are added to running sums, whose next
// versions they become. The sums are its first operands. Bits are those of `op` and `accumulate`.
struct AddingOp {
  const char* name;
  const Op& op;
  int first, sums;

  Metas infer(const Metas& in, const Attrs& attrs) const;
  Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) const;
  std::vector<Sample> samples() const;  // those of `op` that have such sums, behind sums
  // The kernels of `op` and `accumulate` one behind the other, of any device.
  std::unique_ptr<Kernel> composed(const PrepareCall& call) const;
};

namespace cpu {
std::unique_ptr<Kernel> accumulate_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
