#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/leaky_relu.h"

namespace pl::cpu {
namespace {

// out = value where sign > 0, alpha * value elsewhere; `value` is the last operand, `sign` the
// first.
std::unique_ptr<Kernel> prepare_slope(const PrepareCall& call) {
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  const size_t last = call.in.size() - 1;
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    const T alpha = static_cast<T>(call.attrs.real("alpha"));
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* sign = static_cast<const T*>(in[0]);
      const T* value = static_cast<const T*>(in[last]);
      T* result = static_cast<T*>(out[0]);
      parallel_ranges(threads, count, count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          result[i] = sign[i] > T(0) ? value[i] : alpha * value[i];
      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> leaky_relu_reference(const PrepareCall& call) {
  return prepare_slope(call);
}
std::unique_ptr<Kernel> leaky_relu_gradient_reference(const PrepareCall& call) {
  return prepare_slope(call);
}

}  // namespace pl::cpu
