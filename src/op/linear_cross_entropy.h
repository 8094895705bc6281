// The end of a classifier over many classes in one call: logits = h x W [+ bias], softmax
// cross-entropy of integer labels, and the gradients of both, in blocks of rows, so that the logits
// never exist whole. Made by a graph pass (plan/loss_head.cc); losses call the separate ops.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kLinearCrossEntropy;
// With gradients: dw is added to a running sum, the first operand, whose next version it is.
extern const Op kLinearCrossEntropyAccumulate;

struct LinearCrossEntropyResult {
  Tensor loss;     // as the labels; NaN for a label outside [0, C)
  Tensor dh;       // as h
  Tensor dw;       // as w; float32 where that has 16 bits, like all that follows
  Tensor dbias;    // as bias, if there is one
  Tensor correct;  // float32, as the labels: 1 where the largest logit is the first at the label
};

// h (..., D), w (D, C) or, with transpose_b (an embedding's table), (C, D); labels int32, one for
// each row of h; bias (C,) may be undefined. dloss looks like the loss, which does not depend on
// it; undefined: no gradients.
LinearCrossEntropyResult linear_cross_entropy(const Tensor& h, const Tensor& w,
                                              const Tensor& labels, bool transpose_b = false,
                                              const Tensor& bias = {}, const Tensor& dloss = {});

namespace cpu {

// Sizes of a call, and where its optional operands and outputs are (-1: absent).
struct LinearCrossEntropyForm {
  Dim rows, inner, classes;
  Dim block;  // rows worked on at a time
  Dim piece;  // classes multiplied at a time
  bool transpose_b;
  int first = 0;  // operands before h, from where the rest counts: 1 with a sum for dw
  bool accumulate() const { return first > 0; }
  int bias = -1, dloss = -1;                      // operands, behind h, w and labels
  int dh = -1, dw = -1, dbias = -1, correct = 1;  // outputs, behind loss
};
// `accumulate`: of the op with a sum.
LinearCrossEntropyForm linear_cross_entropy_form(const PrepareCall&, bool accumulate = false);

std::unique_ptr<Kernel> linear_cross_entropy_onednn(const PrepareCall&);
std::unique_ptr<Kernel> linear_cross_entropy_reference(const PrepareCall&);
std::unique_ptr<Kernel> linear_cross_entropy_accumulate_onednn(const PrepareCall&);
std::unique_ptr<Kernel> linear_cross_entropy_accumulate_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
