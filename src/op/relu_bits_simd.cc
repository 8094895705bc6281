// relu_bits and its gradient, float32 and bfloat16, compiled once for each SIMD target. Threads
// share out the bytes of all rows, so that one long row keeps them all busy too.
#include "op/relu_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/relu_bits_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

// `count` elements from a byte's first on.
template <class T>
HWY_INLINE void relu_bits_loop(const T* x, T* y, uint8_t* bits, int64_t count) {
  const Floats d;
  const auto zero = hn::Zero(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (lanes >= 8) {  // whole bytes a vector
    for (; i + lanes <= count; i += lanes) {
      const auto v = load(x + i);
      hn::StoreMaskBits(d, hn::Gt(v, zero), bits + i / 8);
      store(hn::IfThenElse(hn::Le(v, zero), zero, v), y + i);
    }
  } else {
    for (; i + 8 <= count; i += 8) {
      unsigned byte = 0;
      for (int64_t k = 0; k < 8; k += lanes) {
        const auto v = load(x + i + k);
        uint8_t part[8] = {};
        hn::StoreMaskBits(d, hn::Gt(v, zero), part);
        byte |= static_cast<unsigned>(part[0]) << k;
        store(hn::IfThenElse(hn::Le(v, zero), zero, v), y + i + k);
      }
      bits[i / 8] = static_cast<uint8_t>(byte);
    }
  }
  while (i < count) {
    const int64_t end = std::min(count, i + 8);
    unsigned byte = 0;
    for (int64_t k = i; k < end; ++k) {
      const auto value = static_cast<float>(x[k]);
      byte |= static_cast<unsigned>(value > 0.0f) << (k - i);
      y[k] = value <= 0.0f ? T(0.0f) : x[k];
    }
    bits[i / 8] = static_cast<uint8_t>(byte);
    i = end;
  }
}

// The library may read 8 bytes for a mask, so they are copied where fewer are left.
template <class T>
HWY_INLINE void relu_bits_gradient_loop(const uint8_t* bits, const T* dy, T* dx, int64_t count) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (lanes >= 8) {
    for (; i + 64 + lanes <= count; i += lanes) {
      const auto positive = hn::LoadMaskBits(d, bits + i / 8);
      store(hn::IfThenElseZero(positive, load(dy + i)), dx + i);
    }
    for (; i + lanes <= count; i += lanes) {
      uint8_t part[8] = {};
      std::memcpy(part, bits + i / 8, static_cast<size_t>(lanes / 8));
      const auto positive = hn::LoadMaskBits(d, part);
      store(hn::IfThenElseZero(positive, load(dy + i)), dx + i);
    }
  } else {
    for (; i + 8 <= count; i += 8)
      for (int64_t k = 0; k < 8; k += lanes) {
        const uint8_t part[8] = {static_cast<uint8_t>(bits[i / 8] >> k)};
        const auto positive = hn::LoadMaskBits(d, part);
        store(hn::IfThenElseZero(positive, load(dy + i + k)), dx + i + k);
      }
  }
  for (; i < count; ++i) dx[i] = (bits[i / 8] >> (i % 8)) & 1 ? dy[i] : T(0.0f);
}

void relu_bits_f32(const float* x, float* y, uint8_t* bits, int64_t count) {
  relu_bits_loop(x, y, bits, count);
}
void relu_bits_bf16(const Bfloat16* x, Bfloat16* y, uint8_t* bits, int64_t count) {
  relu_bits_loop(x, y, bits, count);
}
void relu_bits_gradient_f32(const uint8_t* bits, const float* dy, float* dx, int64_t count) {
  relu_bits_gradient_loop(bits, dy, dx, count);
}
void relu_bits_gradient_bf16(const uint8_t* bits, const Bfloat16* dy, Bfloat16* dx, int64_t count) {
  relu_bits_gradient_loop(bits, dy, dx, count);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(relu_bits_f32);
HWY_EXPORT(relu_bits_bf16);
HWY_EXPORT(relu_bits_gradient_f32);
HWY_EXPORT(relu_bits_gradient_bf16);

namespace {

void relu_bits_range(const float* x, float* y, uint8_t* bits, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_bits_f32)(x, y, bits, count);
}
void relu_bits_range(const Bfloat16* x, Bfloat16* y, uint8_t* bits, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_bits_bf16)(x, y, bits, count);
}
void relu_bits_gradient_range(const uint8_t* bits, const float* dy, float* dx, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_bits_gradient_f32)(bits, dy, dx, count);
}
void relu_bits_gradient_range(const uint8_t* bits, const Bfloat16* dy, Bfloat16* dx, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_bits_gradient_bf16)(bits, dy, dx, count);
}

// Calls body(first element, first byte, elements) for runs within a row that cover bytes
// [begin, end) of all rows.
template <class Body>
void for_runs(Dim row, Dim row_bytes, Dim begin, Dim end, const Body& body) {
  while (begin < end) {
    const Dim r = begin / row_bytes, from = begin % row_bytes;
    const Dim to = std::min(row_bytes, from + end - begin);
    body(r * row + 8 * from, begin, std::min(row, 8 * to) - 8 * from);
    begin += to - from;
  }
}

constexpr Dim kBytesTogether = 64;  // a range begins at a multiple: no two write to one cache line

}  // namespace

std::unique_ptr<Kernel> relu_bits_simd(const PrepareCall& call) {
  const Dim count = call.in[0].elements(), row_bytes = call.out[1].shape[1];
  const Dim bytes = call.out[1].elements(), row = call.in[0].shape.without_front().elements();
  const int threads = call.backend.threads();
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      uint8_t* bits = static_cast<uint8_t*>(out[1]);
      parallel_ranges(
          threads, bytes, count,
          [&](Dim begin, Dim end) {
            for_runs(row, row_bytes, begin, end, [&](Dim first, Dim byte, Dim elements) {
              relu_bits_range(x + first, y + first, bits + byte, elements);
            });
          },
          kBytesTogether);
    });
  });
}

std::unique_ptr<Kernel> relu_bits_gradient_simd(const PrepareCall& call) {
  const Dim count = call.out[0].elements(), row_bytes = call.in[0].shape[1];
  const Dim bytes = call.in[0].elements(), row = call.out[0].shape.without_front().elements();
  const int threads = call.backend.threads();
  return dispatch_simd(call.out[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const uint8_t* bits = static_cast<const uint8_t*>(in[0]);
      const T* dy = static_cast<const T*>(in[1]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(
          threads, bytes, count,
          [&](Dim begin, Dim end) {
            for_runs(row, row_bytes, begin, end, [&](Dim first, Dim byte, Dim elements) {
              relu_bits_gradient_range(bits + byte, dy + first, dx + first, elements);
            });
          },
          kBytesTogether);
    });
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
