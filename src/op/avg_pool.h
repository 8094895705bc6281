// avg_pool and its gradient: means over windows. Padding is no part of a mean, as in TensorFlow.
#pragma once

#include <array>
#include <string>

#include "op/op.h"
#include "op/window.h"

namespace pl {

extern const Op kAvgPool;
extern const Op kAvgPoolGradient;

struct AvgPoolOptions {
  std::array<Dim, 2> pool_size = {2, 2};
  std::array<Dim, 2> strides = {0, 0};  // 0: the pool size
  std::string padding = "valid";        // or "same"
};

// x (B, H, W, C). Result (B, OH, OW, C).
Tensor avg_pool(const Tensor& x, const AvgPoolOptions& options = {});
// dx (B, H, W, C) from dy (B, OH, OW, C).
Tensor avg_pool_gradient(const Tensor& dy, const Shape& input_shape,
                         const AvgPoolOptions& options = {});

struct AvgPoolForm {
  Dim batch, channels;
  Window window;
};
AvgPoolForm avg_pool_form(const Metas& in, const Attrs& attrs);           // throws UserError
AvgPoolForm avg_pool_gradient_form(const Metas& in, const Attrs& attrs);  // throws UserError

namespace cpu {
std::unique_ptr<Kernel> avg_pool_reference(const PrepareCall&);
std::unique_ptr<Kernel> avg_pool_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
