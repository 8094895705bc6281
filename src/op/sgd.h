// Stochastic gradient descent, plain and with momentum, in Keras's formulas. The learning rate
// comes with the step parameters (op/step_params.h).
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kSgd;
extern const Op kSgdMomentum;

// w - learning_rate * g. w and g have one shape.
Tensor sgd(const Tensor& w, const Tensor& g, const Tensor& step_params);

struct SgdMomentumOptions {
  double momentum = 0.9;
  bool nesterov = false;
};
struct SgdMomentumResult {
  Tensor w, velocity;  // their next versions
};
// velocity' = momentum * velocity - learning_rate * g
// w' = w + velocity', or with nesterov w + momentum * velocity' - learning_rate * g
SgdMomentumResult sgd_momentum(const Tensor& w, const Tensor& velocity, const Tensor& g,
                               const Tensor& step_params, const SgdMomentumOptions& options = {});

namespace cpu {
std::unique_ptr<Kernel> sgd_simd(const PrepareCall&);
std::unique_ptr<Kernel> sgd_reference(const PrepareCall&);
std::unique_ptr<Kernel> sgd_momentum_simd(const PrepareCall&);
std::unique_ptr<Kernel> sgd_momentum_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
