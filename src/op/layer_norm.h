// layer_norm: each vector along the last axis, moved and scaled to mean 0 and variance 1, then by
// gamma and beta. Its gradients read x, mean and rstd; those of gamma and beta, sums over all
// vectors, are an op of their own, so that a batch may be split.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kLayerNorm;
extern const Op kLayerNormGradient;
extern const Op kLayerNormParameterGradient;

// y has x's shape (..., D), mean and rstd = 1 / sqrt(variance + epsilon) have (...).
struct LayerNormResult {
  Tensor y, mean, rstd;
};

// x (..., D) with at least two dimensions; gamma and beta (D,).
LayerNormResult layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                           double epsilon);

// With n = (x - mean) * rstd and g = dy * gamma: rstd * (g - average(g) - n * average(g * n)).
Tensor layer_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& mean,
                           const Tensor& rstd, const Tensor& dy);

// dgamma = sum(dy * n), dbeta = sum(dy), over all dimensions but the last.
struct LayerNormParameterGradient {
  Tensor dgamma, dbeta;
};
LayerNormParameterGradient layer_norm_parameter_gradient(const Tensor& x, const Tensor& mean,
                                                         const Tensor& rstd, const Tensor& dy);

namespace cpu {
std::unique_ptr<Kernel> layer_norm_simd(const PrepareCall&);
std::unique_ptr<Kernel> layer_norm_reference(const PrepareCall&);
std::unique_ptr<Kernel> layer_norm_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> layer_norm_gradient_reference(const PrepareCall&);
std::unique_ptr<Kernel> layer_norm_parameter_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> layer_norm_parameter_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
