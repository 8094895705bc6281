// A depthwise weight gradient that the library is slow at; the kernel is in
// conv2d_depthwise_simd.cc.
#pragma once

#include "op/conv2d.h"

namespace pl::cpu {

inline constexpr Dim kDepthwiseTaps = 3;  // along each axis

// Whether the kernel takes it: 3x3, one filter a channel, maps smaller than the kernel.
bool depthwise_suits(const Conv2dForm& f);

std::unique_ptr<Kernel> conv2d_weight_gradient_depthwise(const PrepareCall&);

}  // namespace pl::cpu
