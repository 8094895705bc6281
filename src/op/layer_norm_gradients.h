// All gradients of layer_norm in one pass over x and dy, for devices that gain by it; with what
// else reaches x, such as the gradient of a residual branch. The planner makes it.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kLayerNormGradients;
// With sum = 1; the three sums are added to running sums, the first operands.
extern const Op kLayerNormGradientsAccumulate;

struct LayerNormGradients {
  Tensor dx, dgamma, dbeta;
};
// layer_norm_gradient(x, gamma, mean, rstd, dy) [+ added], and layer_norm_parameter_gradient.
LayerNormGradients layer_norm_gradients(const Tensor& x, const Tensor& gamma, const Tensor& mean,
                                        const Tensor& rstd, const Tensor& dy,
                                        const Tensor& added = {});

// The kernels of its parts, of any device.
std::unique_ptr<Kernel> layer_norm_gradients_in_parts(const PrepareCall&);
std::unique_ptr<Kernel> layer_norm_gradients_accumulate_composed(const PrepareCall&);

}  // namespace pl
