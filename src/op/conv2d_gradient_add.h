// conv2d_input_gradient_add: conv2d_input_gradient(w, dy) + what else reaches the images, for
// devices whose libraries add it while they write. The planner makes it; nobody calls it by hand.
#pragma once

#include "op/conv2d.h"

namespace pl {

extern const Op kConv2dInputGradientAdd;

namespace cpu {
std::unique_ptr<Kernel> conv2d_input_gradient_add_composed(const PrepareCall&);
}

}  // namespace pl
