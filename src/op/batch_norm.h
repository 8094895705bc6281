// batch_norm: each channel (last axis) moved and scaled to mean 0 and variance 1 over all samples
// and pixels, then by gamma and beta. While training it is one op, so that its gradient is one too;
// the planner takes it apart into batch_moments, whose results are small and kept, and
// batch_norm_apply, which is cheap to run again. Inference is batch_norm_apply on moving moments.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kBatchNorm;
extern const Op kBatchMoments;
extern const Op kBatchNormApply;
extern const Op kBatchNormAdd;

// Of x (..., C): mean and population variance (C,) of each channel, in float32 where x is 16-bit.
struct BatchMoments {
  Tensor mean, variance;
};
BatchMoments batch_moments(const Tensor& x);

// y = (x - mean) * (gamma / sqrt(variance + epsilon)) + beta, with x's own moments.
struct BatchNormResult {
  Tensor y, mean, variance;
};
BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                           double epsilon);

// The same formula with given moments. The graph's rewrites put a relu (activation="relu", perhaps
// clipped at attribute most) behind it, and make batch_norm_add of it, which adds a last operand of
// x's shape.
Tensor batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance,
                        const Tensor& gamma, const Tensor& beta, double epsilon);

// Rules that the ops of batch norm share. x (..., C), two dimensions or more.
Meta channels_of(const Meta& x);  // (C,) of the dtype that moments have
double rows_of(const Shape& x);   // elements of a channel
void expect_channels(const char* op, const Metas& in, const Attrs& attrs);
void expect_most(const char* op, const Metas& in, const Attrs& attrs);  // above 0, or none

namespace cpu {
std::unique_ptr<Kernel> batch_norm_simd(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_reference(const PrepareCall&);
std::unique_ptr<Kernel> batch_moments_simd(const PrepareCall&);
std::unique_ptr<Kernel> batch_moments_reference(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_apply_simd(const PrepareCall&);
std::unique_ptr<Kernel> batch_norm_apply_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
