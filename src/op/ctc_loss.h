// ctc_loss: connectionist temporal classification, one loss a sample, and its gradient.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kCtcLoss;
extern const Op kCtcLossGradient;

// -log of the probability that the steps, each a softmax of its logits, spell the labels: with
// repeated classes merged and blanks (class 0) left out. logits (B, T, C); labels int32 (B, L),
// zeros are padding. Result (B,); infinity where T steps cannot spell them, NaN where a label is
// not in [0, C).
Tensor ctc_loss(const Tensor& logits, const Tensor& labels);
// dlogits (B, T, C) from dloss (B,).
Tensor ctc_loss_gradient(const Tensor& logits, const Tensor& labels, const Tensor& dloss);

namespace cpu {
std::unique_ptr<Kernel> ctc_loss_reference(const PrepareCall&);
std::unique_ptr<Kernel> ctc_loss_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
