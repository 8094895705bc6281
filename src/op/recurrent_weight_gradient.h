// recurrent_weight_gradient: of the weights that a recurrent op multiplies its state with, from the
// states it wrote and the gradients of what it read.
#pragma once

#include "op/recurrent.h"

namespace pl {

extern const Op kRecurrentWeightGradient;

// dU (H, columns) = the sum over samples and steps of h_previous^T x dz. h (B, T, H): states as the
// op wrote them; dz (B, T, N), as it read its input, of which the first `columns` count (0: all).
struct RecurrentWeightOptions {
  bool backwards = false, flip = false;
  Dim columns = 0;
  Tensor h0 = {};       // (B, H): the state before the first step; undefined: zeros
  Tensor dropped = {};  // (B, columns / H, H): factors of h_previous for each gate
  std::optional<Dtype> dtype = {};
};
Tensor recurrent_weight_gradient(const Tensor& h, const Tensor& dz,
                                 const RecurrentWeightOptions& options);
// Those of the call of a recurrent op with weights at 1 and other operands at these places.
RecurrentWeightOptions recurrent_weight_options(const GradientCall& call,
                                                const RecurrentForm& places);

namespace cpu {
std::unique_ptr<Kernel> recurrent_weight_gradient_onednn(const PrepareCall&);
std::unique_ptr<Kernel> recurrent_weight_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
