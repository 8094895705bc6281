#include "op/conv2d_gradient_add.h"
#include "op/then-inl.h"

namespace pl::cpu {

std::unique_ptr<Kernel> conv2d_input_gradient_add_composed(const PrepareCall& call) {
  return then(kConv2dInputGradient, {0, 1}, 2, call, kThenAdd);
}

}  // namespace pl::cpu
