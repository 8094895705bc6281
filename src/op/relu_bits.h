// relu that also tells, in a bit per element, where its output is positive: all that its gradient
// needs. Made by a graph pass (plan/relu_bits.cc) where the output would be kept for nothing else.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kReluBits;
extern const Op kReluBitsGradient;

struct ReluBitsResult {
  Tensor y;     // as relu's
  Tensor bits;  // uint8 (B, ceil(elements of a row / 8)): element i of a row is bit i % 8, from the
                // lowest, of byte i / 8; unused bits are 0
};

ReluBitsResult relu_bits(const Tensor& x);                        // x (B, ...)
Tensor relu_bits_gradient(const Tensor& bits, const Tensor& dy);  // dy where the bit is 1, else 0

namespace cpu {
std::unique_ptr<Kernel> relu_bits_simd(const PrepareCall&);
std::unique_ptr<Kernel> relu_bits_reference(const PrepareCall&);
std::unique_ptr<Kernel> relu_bits_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> relu_bits_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
