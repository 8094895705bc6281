// A convolution over few input channels and the max-pool behind it as one call, as the first layers
// of small networks have them: the large image between the two never exists, forward or backward.
// The passes make these nodes (plan/fuse_conv_pool.cc); they are not differentiated again.
#pragma once

#include <vector>

#include "op/conv2d.h"
#include "op/max_pool.h"

namespace pl {

extern const Op kConv2dPool;                // x, w, [bias] -> y, index
extern const Op kConv2dPoolWeightGradient;  // x, index, dy -> dw, [db]

// The attributes of both: the convolution's, and the pool's as pool_size, pool_strides and
// pool_padding.
Attrs conv2d_pool_attrs(const Attrs& conv, const Attrs& pool);

inline constexpr uint8_t kNoPosition = 255;  // such an element has no gradient

struct Conv2dPoolForm {
  Conv2dForm conv;  // relu is applied behind the pool
  PoolForm pool;
  bool masked = false;  // attribute: the index is kNoPosition where relu lets nothing through
};
Conv2dPoolForm conv2d_pool_form(const Metas& in, const Attrs& attrs);                  // UserError
Conv2dPoolForm conv2d_pool_weight_gradient_form(const Metas& in, const Attrs& attrs);  // UserError

// Whether the fused kernels take it: few channels, and pool windows that lie whole in the image and
// share nothing.
bool conv2d_pool_fits(const Conv2dForm& conv, const PoolForm& pool);

namespace cpu {
std::unique_ptr<Kernel> conv2d_pool_simd(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_pool_reference(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_pool_weight_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_pool_weight_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
