// avg_pool and its gradient: means over windows. Padding is no part of a mean, as in TensorFlow.
#pragma once

#include "op/pooling.h"

namespace pl {

extern const Op kAvgPool;
extern const Op kAvgPoolGradient;

// x (B, H, W, C). Result (B, OH, OW, C).
Tensor avg_pool(const Tensor& x, const PoolOptions& options = {});
// dx (B, H, W, C) from dy (B, OH, OW, C).
Tensor avg_pool_gradient(const Tensor& dy, const Shape& input_shape,
                         const PoolOptions& options = {});

PoolForm avg_pool_form(const Metas& in, const Attrs& attrs);           // throws UserError
PoolForm avg_pool_gradient_form(const Metas& in, const Attrs& attrs);  // throws UserError

namespace cpu {
std::unique_ptr<Kernel> avg_pool_reference(const PrepareCall&);
std::unique_ptr<Kernel> avg_pool_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
