// CPU kernel of broadcast_to: runs of copies and runs of one repeated element.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/broadcast.h"
#include "op/broadcast_to.h"
#include "op/kernel.h"

namespace pl::cpu {

std::unique_ptr<Kernel> broadcast_to_reference(const PrepareCall& call) {
  return dispatch_size(call.in[0].dtype, [&]<class T>() {
    const Dim total = call.out[0].elements();
    const int threads = call.backend.threads();
    const BroadcastWalk walk(call.in[0].shape, call.in[0].shape, call.out[0].shape);
    auto kernel = make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(
          threads, total, total,
          [&](Dim begin, Dim end) {
            walk.pieces(begin, end, [&](Dim from, Dim, Dim at, Dim count) {
              if (walk.a_steps)
                std::copy_n(x + from, count, y + at);
              else
                std::fill_n(y + at, count, x[from]);
            });
          },
          64);
    });
    kernel->footprint += static_cast<Bytes>(walk.outer.size() * sizeof(BroadcastWalk::Outer));
    return kernel;
  });
}

}  // namespace pl::cpu
