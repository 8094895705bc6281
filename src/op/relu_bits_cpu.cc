// Reference kernels of relu_bits: rows are shared out to threads, so that none shares a byte.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/relu_bits.h"

namespace pl::cpu {
namespace {

struct Size {
  Dim rows, row, row_bytes;
};

Size size_of_call(const Meta& x, const Meta& bits) {
  return {x.shape[0], x.shape.without_front().elements(), bits.shape[1]};
}

}  // namespace

std::unique_ptr<Kernel> relu_bits_reference(const PrepareCall& call) {
  const Size s = size_of_call(call.in[0], call.out[1]);
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      uint8_t* bits = static_cast<uint8_t*>(out[1]);
      parallel_ranges(threads, s.rows, s.rows * s.row, [&](Dim begin, Dim end) {
        std::fill(bits + begin * s.row_bytes, bits + end * s.row_bytes, uint8_t{0});
        for (Dim r = begin; r < end; ++r)
          for (Dim i = 0; i < s.row; ++i) {
            const T value = x[r * s.row + i];
            if (value > T(0)) bits[r * s.row_bytes + i / 8] |= static_cast<uint8_t>(1u << (i % 8));
            y[r * s.row + i] = value <= T(0) ? T(0) : value;
          }
      });
    });
  });
}

std::unique_ptr<Kernel> relu_bits_gradient_reference(const PrepareCall& call) {
  const Size s = size_of_call(call.in[1], call.in[0]);
  const int threads = call.backend.threads();
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const uint8_t* bits = static_cast<const uint8_t*>(in[0]);
      const T* dy = static_cast<const T*>(in[1]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(threads, s.rows, s.rows * s.row, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r)
          for (Dim i = 0; i < s.row; ++i) {
            const bool positive = (bits[r * s.row_bytes + i / 8] >> (i % 8)) & 1;
            dx[r * s.row + i] = positive ? dy[r * s.row + i] : T(0);
          }
      });
    });
  });
}

}  // namespace pl::cpu
