// causal_mask: minus infinity wherever a later position is looked at, so that a softmax gives it
// nothing. For attention whose scores exist as a whole; the attention op masks by itself.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kCausalMask;

// x (..., T, S): elements with s > t become minus infinity; in the gradient they become 0.
Tensor causal_mask(const Tensor& x);
Tensor causal_mask_gradient(const Tensor& dy);

namespace cpu {
std::unique_ptr<Kernel> causal_mask_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
