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
// One row each, for kernels that have rows of logits at hand. The loss and the softmax (`probs` may
// be `logits`), the gradient from the softmax (`dlogits` may be `probs`), and whether the first
// largest element is at the label.
float cross_entropy_row(const float* logits, int32_t label, float* probs, Dim classes);
void cross_entropy_gradient_row(const float* probs, int32_t label, float dloss, float* dlogits,
                                Dim classes);
bool largest_at(const float* row, int32_t label, Dim classes);

std::unique_ptr<Kernel> sparse_softmax_cross_entropy_simd(const PrepareCall&);
std::unique_ptr<Kernel> sparse_softmax_cross_entropy_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> sparse_softmax_cross_entropy_reference(const PrepareCall&);
std::unique_ptr<Kernel> sparse_softmax_cross_entropy_gradient_reference(const PrepareCall&);
std::unique_ptr<Kernel> softmax_cross_entropy_reference(const PrepareCall&);
std::unique_ptr<Kernel> softmax_cross_entropy_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
