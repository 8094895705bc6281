// A few thousand elements at most: one thread, in a loop that the compiler vectorises.
#include "op/kernel.h"
#include "op/moving_statistics.h"

namespace pl::cpu {

std::unique_ptr<Kernel> moving_statistics_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Dim count = call.in[0].elements();
    const double momentum = call.attrs.real("momentum");
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T keep = static_cast<T>(momentum), take = static_cast<T>(1 - momentum);
      for (int s = 0; s < 2; ++s) {
        const T* moving = static_cast<const T*>(in[s]);
        const T* batch = static_cast<const T*>(in[s + 2]);
        T* next = static_cast<T*>(out[s]);
        for (Dim c = 0; c < count; ++c) next[c] = moving[c] * keep + batch[c] * take;
      }
    });
  });
}

}  // namespace pl::cpu
