#include "op/cuda/kernels.h"
#include "op/cuda/launch-inl.cuh"

namespace pl::cuda {
namespace {

template <class T>
struct Relu {
  const T* x;
  T* y;
  __device__ void operator()(int64_t i) const {
    const auto v = load(x + i);
    store(y + i, v <= 0 ? 0 : v);  // NaN stays
  }
};

template <class T>
struct ReluGradient {
  const T *y, *dy;
  T* dx;
  __device__ void operator()(int64_t i) const {
    store(dx + i, load(y + i) > 0 ? load(dy + i) : ComputeOf<T>(0));
  }
};

}  // namespace

std::unique_ptr<Kernel> relu(const PrepareCall& call) {
  CudaBackend& backend = backend_of(call);
  const int64_t count = call.out[0].elements();
  return dispatch_cuda(call.out[0].dtype, [&]<class T>() {
    return make_kernel([&backend, count](void* const* in, void* const* out, void*) {
      launch_elements(backend, count,
                      Relu<T>{static_cast<const T*>(in[0]), static_cast<T*>(out[0])});
    });
  });
}

std::unique_ptr<Kernel> relu_gradient(const PrepareCall& call) {
  CudaBackend& backend = backend_of(call);
  const int64_t count = call.out[0].elements();
  return dispatch_cuda(call.out[0].dtype, [&]<class T>() {
    return make_kernel([&backend, count](void* const* in, void* const* out, void*) {
      launch_elements(backend, count,
                      ReluGradient<T>{static_cast<const T*>(in[0]), static_cast<const T*>(in[1]),
                                      static_cast<T*>(out[0])});
    });
  });
}

}  // namespace pl::cuda
