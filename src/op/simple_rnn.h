// simple_rnn: h = activation(z + h_previous x u) over whole sequences, and its gradient.
#pragma once

#include "op/recurrent.h"

namespace pl {

extern const Op kSimpleRnn;
extern const Op kSimpleRnnGradient;

// Operands that may be undefined.
struct SimpleRnnExtras {
  Tensor h0 = {};       // (B, H): the state before the first step, else zeros
  Tensor mask = {};     // boolean (B, T): where it is false, the state stays as it is
  Tensor dropped = {};  // (B, 1, H): factors of the state in front of the weights
};
struct SimpleRnnResult {
  Tensor h;       // (B, T, H)
  Tensor last_h;  // (B, H), behind the last step
};
// z (B, T, H): x W + b of all steps; u (H, H): the recurrent weights.
SimpleRnnResult simple_rnn(const Tensor& z, const Tensor& u, const SimpleRnnExtras& extras = {},
                           const RecurrentOptions& options = {});

namespace cpu {

RecurrentForm simple_rnn_form(const PrepareCall&);
RecurrentForm simple_rnn_gradient_form(const PrepareCall&);

std::unique_ptr<Kernel> simple_rnn_simd(const PrepareCall&);
std::unique_ptr<Kernel> simple_rnn_reference(const PrepareCall&);
std::unique_ptr<Kernel> simple_rnn_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> simple_rnn_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
