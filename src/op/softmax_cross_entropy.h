// Softmax and cross-entropy in one, one loss a row, with labels as integers or as distributions.
// A label outside [0, C) gives that row a loss (and a gradient) of NaN.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kSparseSoftmaxCrossEntropy;
extern const Op kSparseSoftmaxCrossEntropyGradient;
extern const Op kSoftmaxCrossEntropy;
extern const Op kSoftmaxCrossEntropyGradient;

struct SoftmaxCrossEntropyResult {
  Tensor loss;   // (B, ...)
  Tensor probs;  // (B, ..., C), softmax of the logits
};

// logits (B, ..., C), labels int32 (B, ...): one label a sample, or one a position.
SoftmaxCrossEntropyResult sparse_softmax_cross_entropy(const Tensor& logits, const Tensor& labels);
// logits and targets (B, ..., C). No gradient flows to the targets.
SoftmaxCrossEntropyResult softmax_cross_entropy(const Tensor& logits, const Tensor& targets);

// dlogits (B, ..., C) from dloss (B, ...).
Tensor sparse_softmax_cross_entropy_gradient(const Tensor& probs, const Tensor& labels,
                                             const Tensor& dloss);
Tensor softmax_cross_entropy_gradient(const Tensor& probs, const Tensor& targets,
                                      const Tensor& dloss);

namespace cpu {
// Pieces of a row, for kernels that have logits at hand: the largest element; exp(x - largest), of
// which the sum is returned, and x * factor, each to a place that may be `x`.
float largest_of_piece(const float* x, Dim count);
double exp_of_piece(const float* x, float largest, float* to, Dim count);
void scale_piece(const float* x, float factor, float* to, Dim count);
// Whether all elements are below the limit (NaN is not), and whether any is above (NaN is not).
bool piece_below(const float* x, float limit, Dim count);
bool piece_exceeds(const float* x, float limit, Dim count);

std::unique_ptr<Kernel> sparse_softmax_cross_entropy_simd(const PrepareCall&);
std::unique_ptr<Kernel> sparse_softmax_cross_entropy_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> sparse_softmax_cross_entropy_reference(const PrepareCall&);
std::unique_ptr<Kernel> sparse_softmax_cross_entropy_gradient_reference(const PrepareCall&);
std::unique_ptr<Kernel> softmax_cross_entropy_reference(const PrepareCall&);
std::unique_ptr<Kernel> softmax_cross_entropy_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
