// max_pool and its gradient. The forward pass keeps, beside the maxima, where in its window each
// was: one byte an element, and all that the gradient reads besides dy.
#pragma once

#include <array>
#include <string>

#include "op/op.h"
#include "op/window.h"

namespace pl {

extern const Op kMaxPool;
extern const Op kMaxPoolGradient;

struct MaxPoolOptions {
  std::array<Dim, 2> pool_size = {2, 2};
  std::array<Dim, 2> strides = {0, 0};  // 0: the pool size
  std::string padding = "valid";        // or "same", or "explicit" with pads; never chosen
  std::array<Dim, 4> pads = {};         // top, bottom, left, right
};

// x (B, H, W, C). Result (B, OH, OW, C).
Tensor max_pool(const Tensor& x, const MaxPoolOptions& options = {});

// Window positions (row * pool width + column) of the first maxima, and the maxima themselves.
struct MaxPoolResult {
  Tensor y;      // (B, OH, OW, C)
  Tensor index;  // uint8 (B, OH, OW, C)
};
MaxPoolResult max_pool_with_index(const Tensor& x, const MaxPoolOptions& options = {});

// dx (B, H, W, C) from index and dy (B, OH, OW, C).
Tensor max_pool_gradient(const Tensor& index, const Tensor& dy, const Shape& input_shape,
                         const MaxPoolOptions& options = {});

struct MaxPoolForm {
  Dim batch, channels;
  Window window;
  // No input position is read by two windows: the gradient then has no sums.
  bool disjoint() const {
    return window.h.kernel <= window.h.stride && window.w.kernel <= window.w.stride;
  }
};
MaxPoolForm max_pool_form(const Metas& in, const Attrs& attrs);           // throws UserError
MaxPoolForm max_pool_gradient_form(const Metas& in, const Attrs& attrs);  // throws UserError

namespace cpu {
std::unique_ptr<Kernel> max_pool_simd(const PrepareCall&);
std::unique_ptr<Kernel> max_pool_reference(const PrepareCall&);
std::unique_ptr<Kernel> max_pool_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> max_pool_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
