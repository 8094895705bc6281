// lstm: Keras's LSTM over whole sequences, behind the projection of its inputs, and its gradient.
// Gates are i, f, c, o along the last axis.
#pragma once

#include "op/recurrent.h"

namespace pl {

extern const Op kLstm;
extern const Op kLstmGradient;

// Operands that may be undefined.
struct LstmExtras {
  Tensor h0 = {}, c0 = {};  // (B, H), both or neither: the state before the first step, else zeros
  Tensor mask = {};         // boolean (B, T): where it is false, the state stays as it is
  Tensor dropped = {};      // (B, 4, H): factors of the state in front of each gate's weights
};
struct LstmResult {
  Tensor h;               // (B, T, H)
  Tensor last_h, last_c;  // (B, H), behind the last step
};
// z (B, T, 4 H): x W + b of all steps; u (H, 4 H): the recurrent weights.
LstmResult lstm(const Tensor& z, const Tensor& u, const LstmExtras& extras = {},
                const RecurrentOptions& options = {});

namespace cpu {

RecurrentForm lstm_form(const PrepareCall&);
RecurrentForm lstm_gradient_form(const PrepareCall&);

std::unique_ptr<Kernel> lstm_simd(const PrepareCall&);
std::unique_ptr<Kernel> lstm_reference(const PrepareCall&);
std::unique_ptr<Kernel> lstm_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> lstm_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
