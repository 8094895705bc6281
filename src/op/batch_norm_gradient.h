// batch_norm_gradient: all gradients of batch_norm in two passes, with those of a relu and of an
// addition behind it where the graph's rewrites join them.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kBatchNormGradient;
extern const Op kBatchNormReluGradient;
extern const Op kBatchNormAddReluGradient;

// With n = (x - mean) / sqrt(variance + epsilon): dbeta = sum(dy), dgamma = sum(dy * n),
// dx = gamma / sqrt(variance + epsilon) * (dy - average(dy) - n * average(dy * n)).
struct BatchNormGradient {
  Tensor dx, dgamma, dbeta;
};
BatchNormGradient batch_norm_gradient(const Tensor& x, const Tensor& mean, const Tensor& variance,
                                      const Tensor& gamma, const Tensor& dy, double epsilon);

// Two more forms, made by rewrites, in which dy counts only where a relu let through:
//   batch_norm_relu_gradient (x, mean, variance, gamma, dy, beta): where batch_norm's own output,
//     made again from x, was positive
//   batch_norm_add_relu_gradient (x, mean, variance, gamma, dy, y): where y, the relu's output, is;
//     dy so masked, the gradient of what was added, is a fourth output
// With attribute most the relu was clipped there.

namespace cpu {
std::unique_ptr<Kernel> batch_norm_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_gradient_reference(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_relu_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_relu_gradient_reference(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_add_relu_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_add_relu_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
