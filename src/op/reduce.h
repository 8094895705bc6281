// Sums, maxima, products and norms over axes. Means are sums that `scale` divides, so that a batch
// may still be split.
#pragma once

#include <optional>
#include <vector>

#include "op/op.h"

namespace pl {

extern const Op kReduceSum;
extern const Op kReduceMax;
extern const Op kReduceMin;
extern const Op kReduceProd;
extern const Op kReduceNorm;
extern const Op kReduceSumAccumulate;  // adds the sum to a running sum, the first operand

// Axes may be negative, counted from the end; none given means all. keepdims leaves them as 1. The
// sum of 16-bit numbers may be asked for in float32.
Tensor reduce_sum(const Tensor& x, std::vector<int64_t> axes = {}, bool keepdims = false,
                  std::optional<Dtype> dtype = {});
Tensor reduce_mean(const Tensor& x, std::vector<int64_t> axes = {}, bool keepdims = false);
// The gradient is shared equally among equal maxima, as in TensorFlow.
Tensor reduce_max(const Tensor& x, std::vector<int64_t> axes = {}, bool keepdims = false);
Tensor reduce_min(const Tensor& x, std::vector<int64_t> axes = {}, bool keepdims = false);
Tensor reduce_prod(const Tensor& x, std::vector<int64_t> axes = {}, bool keepdims = false);
// The root of the sum of squares. The gradient at 0 is NaN.
Tensor reduce_norm(const Tensor& x, std::vector<int64_t> axes = {}, bool keepdims = false);

// Undoes a broadcast: sums x over the dimensions along which `shape` had been stretched.
Tensor sum_to(const Tensor& x, const Shape& shape, std::optional<Dtype> dtype = {});

// reduce_sum and accumulate one behind the other, of any device.
std::unique_ptr<Kernel> reduce_sum_accumulate_composed(const PrepareCall&);

namespace cpu {
std::unique_ptr<Kernel> reduce_sum_tiled(const PrepareCall&);
std::unique_ptr<Kernel> reduce_max_tiled(const PrepareCall&);
std::unique_ptr<Kernel> reduce_min_tiled(const PrepareCall&);
std::unique_ptr<Kernel> reduce_prod_tiled(const PrepareCall&);
std::unique_ptr<Kernel> reduce_norm_tiled(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
