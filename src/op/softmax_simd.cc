// softmax and its gradient, float32, compiled once for each SIMD target. Sums run in 16 lanes
// whatever the vector width, and are added up in double after each block, so that all targets give
// the same bits.
#include "op/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/softmax_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <limits>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

// 16 elements at a time of a row: body(offset, count), count = 16 but at the row's end; and after
// each block the 16 sums join the total.
template <class Body>
HWY_INLINE double sum_blocks(Dim classes, const Body& body) {
  constexpr Dim kBlock = 64 * kLanes;
  double total = 0;
  for (Dim begin = 0; begin < classes; begin += kBlock) {
    const Dim end = std::min(classes, begin + kBlock);
    float sums[kLanes] = {};
    for (Dim c = begin; c < end; c += kLanes) body(c, std::min(kLanes, end - c), sums);
    for (float lane : sums) total += static_cast<double>(lane);
  }
  return total;
}

// 16 exponentials of x - largest to `to`, added to the 16 sums.
HWY_INLINE void exp_sixteen(const float* x, float largest, float* to, float* sums) {
  const Floats d;
  for (Dim i = 0; i < kLanes; i += kWidth) {
    const auto e = exp_of(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, largest)));
    hn::StoreU(e, d, to + i);
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), e), d, sums + i);
  }
}

HWY_INLINE void multiply_sixteen(const float* a, const float* b, float* sums) {
  const Floats d;
  for (Dim i = 0; i < kLanes; i += kWidth) {
    const auto product = hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), product), d, sums + i);
  }
}

void softmax_rows(const float* x, float* y, Dim rows, Dim classes) {
  for (Dim r = 0; r < rows; ++r, x += classes, y += classes) {
    float largest = x[0];
    for (Dim c = 1; c < classes; ++c) largest = x[c] > largest ? x[c] : largest;
    const double sum = sum_blocks(classes, [&](Dim c, Dim count, float* sums) HWY_ATTR {
      if (count == kLanes) return exp_sixteen(x + c, largest, y + c, sums);
      float rest[kLanes];
      std::fill(rest, rest + kLanes, -std::numeric_limits<float>::infinity());
      std::copy_n(x + c, count, rest);
      exp_sixteen(rest, largest, rest, sums);
      std::copy_n(rest, count, y + c);
    });
    const float factor = static_cast<float>(1 / sum);
    for (Dim c = 0; c < classes; ++c) y[c] *= factor;
  }
}

void softmax_gradient_rows(const float* y, const float* dy, float* dx, Dim rows, Dim classes) {
  for (Dim r = 0; r < rows; ++r, y += classes, dy += classes, dx += classes) {
    const double dot = sum_blocks(classes, [&](Dim c, Dim count, float* sums) HWY_ATTR {
      if (count == kLanes) return multiply_sixteen(y + c, dy + c, sums);
      float left[kLanes] = {}, right[kLanes] = {};
      std::copy_n(y + c, count, left);
      std::copy_n(dy + c, count, right);
      multiply_sixteen(left, right, sums);
    });
    const float mean = static_cast<float>(dot);
#pragma omp simd
    for (Dim c = 0; c < classes; ++c) dx[c] = y[c] * (dy[c] - mean);
  }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(softmax_rows);
HWY_EXPORT(softmax_gradient_rows);

std::unique_ptr<Kernel> softmax_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32 || call.in[0].elements() == 0) return nullptr;
  const Dim classes = call.out[0].shape.back(), rows = call.out[0].elements() / classes;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(threads, rows, rows * classes * 4, [&](Dim begin, Dim end) {
      HWY_DYNAMIC_DISPATCH(softmax_rows)
      (x + begin * classes, y + begin * classes, end - begin, classes);
    });
  });
}

std::unique_ptr<Kernel> softmax_gradient_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32 || call.in[0].elements() == 0) return nullptr;
  const Dim classes = call.out[0].shape.back(), rows = call.out[0].elements() / classes;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* y = static_cast<const float*>(in[0]);
    const float* dy = static_cast<const float*>(in[1]);
    float* dx = static_cast<float*>(out[0]);
    parallel_ranges(threads, rows, rows * classes * 2, [&](Dim begin, Dim end) {
      const Dim at = begin * classes;
      HWY_DYNAMIC_DISPATCH(softmax_gradient_rows)(y + at, dy + at, dx + at, end - begin, classes);
    });
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
