// max_pool and its gradient. The forward pass keeps, beside the maxima, where in its window each
// was: one byte an element, four where windows have more than 255, and all that the gradient reads
// besides dy.
#pragma once

#include "op/pooling.h"

namespace pl {

extern const Op kMaxPool;
extern const Op kMaxPoolGradient;

// x (B, H, W, C), reals, integers or bytes; booleans as int32. Result (B, OH, OW, C).
Tensor max_pool(const Tensor& x, const PoolOptions& options = {});

// Window positions (row * pool width + column) of the first maxima, and the maxima themselves.
struct MaxPoolResult {
  Tensor y;      // (B, OH, OW, C)
  Tensor index;  // uint8 or int32 (B, OH, OW, C)
};
MaxPoolResult max_pool_with_index(const Tensor& x, const PoolOptions& options = {});

// dx (B, H, W, C) from index and dy (B, OH, OW, C).
Tensor max_pool_gradient(const Tensor& index, const Tensor& dy, const Shape& input_shape,
                         const PoolOptions& options = {});

Dtype max_pool_index(const PoolForm& form);
PoolForm max_pool_form(const Metas& in, const Attrs& attrs);           // throws UserError
PoolForm max_pool_gradient_form(const Metas& in, const Attrs& attrs);  // throws UserError

namespace cpu {
std::unique_ptr<Kernel> max_pool_simd(const PrepareCall&);
std::unique_ptr<Kernel> max_pool_reference(const PrepareCall&);
std::unique_ptr<Kernel> max_pool_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> max_pool_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
