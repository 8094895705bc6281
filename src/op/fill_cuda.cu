#include "op/cuda/kernels.h"
#include "op/cuda/launch-inl.cuh"

namespace pl::cuda {
namespace {

template <class T>
struct Fill {
  T* y;
  T value;
  __device__ void operator()(int64_t i) const { y[i] = value; }
};

template <class T>
std::unique_ptr<Kernel> filler(CudaBackend& backend, int64_t count, T value) {
  return make_kernel([&backend, count, value](void* const*, void* const* out, void*) {
    launch_elements(backend, count, Fill<T>{static_cast<T*>(out[0]), value});
  });
}

}  // namespace

std::unique_ptr<Kernel> fill(const PrepareCall& call) {
  CudaBackend& backend = backend_of(call);
  const int64_t count = call.out[0].elements();
  const double value = call.attrs.real("value");
  switch (call.out[0].dtype) {
    case Dtype::float32:
      return filler(backend, count, static_cast<float>(value));
    case Dtype::float64:
      return filler(backend, count, value);
    case Dtype::bfloat16:
      return filler(backend, count, __float2bfloat16(static_cast<float>(value)));
    case Dtype::float16:
      return filler(backend, count, __float2half(static_cast<float>(value)));
    case Dtype::int32:
      return filler(backend, count, static_cast<int32_t>(value));
    case Dtype::int64:
      return filler(backend, count, static_cast<int64_t>(value));
    case Dtype::uint8:
    case Dtype::boolean:
      return filler(backend, count, static_cast<uint8_t>(value));
    default:
      return nullptr;
  }
}

}  // namespace pl::cuda
