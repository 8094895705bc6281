// group_norm: the channels of each sample in groups of neighbours, each group moved and scaled to
// mean 0 and variance 1 over all positions, then each channel by gamma and beta. Its gradients read
// x, mean and rstd, and sums over the positions of a sample, so that a batch may be split.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kGroupNorm;
extern const Op kGroupNormSums;
extern const Op kGroupNormGradient;

// y has x's shape (B, ..., C), mean and rstd = 1 / sqrt(variance + epsilon) have (B, groups).
struct GroupNormResult {
  Tensor y, mean, rstd;
};

// x (B, ..., C) with at least one position; gamma and beta (C,). `groups` divides C.
GroupNormResult group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, int64_t groups,
                           double epsilon);

// Over the positions of each sample, both (B, C): with n = (x - mean) * rstd, the sums of dy * n
// and of dy. Summed over the batch they are the gradients of gamma and beta.
struct GroupNormSums {
  Tensor of_normal, of_dy;
};
GroupNormSums group_norm_sums(const Tensor& x, const Tensor& mean, const Tensor& rstd,
                              const Tensor& dy);

// With g = dy * gamma, averages over groups and their positions:
// rstd * (g - average(g) - n * average(g * n)).
Tensor group_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& mean,
                           const Tensor& rstd, const Tensor& dy, const GroupNormSums& sums);

// x as (batch, positions, channels), the channels in `groups` of `each`.
struct GroupNormForm {
  Dim batch, positions, channels, groups, each;
  Dim count() const { return positions * each; }  // of a group
};
GroupNormForm group_norm_form(const Meta& x, Dim groups);

namespace cpu {
std::unique_ptr<Kernel> group_norm_simd(const PrepareCall&);
std::unique_ptr<Kernel> group_norm_reference(const PrepareCall&);
std::unique_ptr<Kernel> group_norm_sums_simd(const PrepareCall&);
std::unique_ptr<Kernel> group_norm_sums_reference(const PrepareCall&);
std::unique_ptr<Kernel> group_norm_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> group_norm_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
