// The one list of CUDA kernels.
#include "op/cuda_catalogue.h"

#include "op/cuda/kernels.h"
#include "op/fill.h"
#include "op/relu.h"
#include "op/scale.h"

namespace pl {

std::span<const CudaVariant> cuda_variants() {
  static const CudaVariant kVariants[] = {
      {&kFill, {"cuda", DeviceKind::cuda, cuda::fill}},
      {&kScale, {"cuda", DeviceKind::cuda, cuda::scale}},
      {&kRelu, {"cuda", DeviceKind::cuda, cuda::relu}},
      {&kReluGradient, {"cuda", DeviceKind::cuda, cuda::relu_gradient}},
  };
  return kVariants;
}

}  // namespace pl
