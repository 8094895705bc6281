#include "op/cuda/kernels.h"
#include "op/cuda/launch-inl.cuh"

namespace pl::cuda {
namespace {

template <class T>
struct Scale {
  const T* x;
  T* y;
  ComputeOf<T> factor, offset;
  __device__ void operator()(int64_t i) const { store(y + i, load(x + i) * factor + offset); }
};

}  // namespace

std::unique_ptr<Kernel> scale(const PrepareCall& call) {
  CudaBackend& backend = backend_of(call);
  const int64_t count = call.out[0].elements();
  const double factor = call.attrs.real("factor"), offset = call.attrs.real("offset", 0);
  return dispatch_cuda(call.out[0].dtype, [&]<class T>() {
    return make_kernel([&backend, count, factor, offset](void* const* in, void* const* out, void*) {
      launch_elements(backend, count,
                      Scale<T>{static_cast<const T*>(in[0]), static_cast<T*>(out[0]),
                               static_cast<ComputeOf<T>>(factor),
                               static_cast<ComputeOf<T>>(offset)});
    });
  });
}

}  // namespace pl::cuda
