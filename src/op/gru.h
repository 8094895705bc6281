// gru: Keras's GRU over whole sequences, behind the projection of its inputs, and its gradient.
// Gates are z, r, h along the last axis.
#pragma once

#include "op/recurrent.h"

namespace pl {

extern const Op kGru;
extern const Op kGruGradient;

// Operands that may be undefined.
struct GruExtras {
  Tensor bias = {};     // (3 H): of the product with the state; with reset_after alone
  Tensor h0 = {};       // (B, H): the state before the first step, else zeros
  Tensor mask = {};     // boolean (B, T): where it is false, the state stays as it is
  Tensor dropped = {};  // (B, 3, H): factors of the state in front of each gate's weights
};
struct GruOptions : RecurrentOptions {
  bool reset_after = true;  // the reset gate acts on the product with the state, not on the state
};
struct GruResult {
  Tensor h;       // (B, T, H)
  Tensor last_h;  // (B, H), behind the last step
};
// z (B, T, 3 H): x W + b of all steps; u (H, 3 H): the recurrent weights.
GruResult gru(const Tensor& z, const Tensor& u, const GruExtras& extras = {},
              const GruOptions& options = {});

namespace cpu {

RecurrentForm gru_form(const PrepareCall&);
RecurrentForm gru_gradient_form(const PrepareCall&);

std::unique_ptr<Kernel> gru_simd(const PrepareCall&);
std::unique_ptr<Kernel> gru_reference(const PrepareCall&);
std::unique_ptr<Kernel> gru_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> gru_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
