// matmul_accumulate: a product added to a running sum, such as the gradient of a weight over a
// batch that is worked off in pieces. The product has no bytes of its own.
#pragma once

#include "op/matmul.h"

namespace pl {

extern const Op kMatmulAccumulate;

// sum + op(a) x op(b), the sum's next version; a and b as matmul's, in the same forms.
Tensor matmul_accumulate(const Tensor& sum, const Tensor& a, const Tensor& b,
                         MatmulOptions options = {});

namespace cpu {
std::unique_ptr<Kernel> matmul_accumulate_onednn(const PrepareCall&);
std::unique_ptr<Kernel> matmul_accumulate_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
