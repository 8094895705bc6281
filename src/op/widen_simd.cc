// Conversion between 16-bit floats and float32, compiled once for each SIMD target.
#include "op/widen.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/widen_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

template <class From, class To>
HWY_INLINE void convert(const From* from, To* to, Dim count) {
  Dim i = 0;
  for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
    const auto a = load(from + i), b = load(from + i + kWidth);
    store(a, to + i);
    store(b, to + i + kWidth);
  }
  for (; i < count; i += kWidth) {
    const Dim n = count - i < kWidth ? count - i : kWidth;
    store(load(from + i, n), to + i, n);
  }
}

void widen_blocks(const Bfloat16* from, Dim rows, Dim stride, Dim width, float* to) {
  for (Dim r = 0; r < rows; ++r) convert(from + r * stride, to + r * width, width);
}
void narrow_bf16(const float* from, Bfloat16* to, Dim count) { convert(from, to, count); }
void round_in_place(float* x, Dim count) {
  along_row(count, [&](Dim i, Dim n) HWY_ATTR {
    Bfloat16 rounded[kLanes];
    store(load(x + i, n), rounded);
    store(load(rounded), x + i, n);
  });
}

// The instructions for float16 came with AVX2; before it, one by one.
void widen_half(const Float16* from, float* to, Dim count) {
  Dim i = 0;
#if HWY_TARGET <= HWY_AVX2 && HWY_TARGET != HWY_SCALAR
  const hn::Rebind<hwy::float16_t, Floats> halves;
  const auto* words = reinterpret_cast<const hwy::float16_t*>(from);
  for (; i + kWidth <= count; i += kWidth)
    store(hn::PromoteTo(Floats(), hn::LoadU(halves, words + i)), to + i);
#endif
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
void narrow_half(const float* from, Float16* to, Dim count) {
  Dim i = 0;
#if HWY_TARGET <= HWY_AVX2 && HWY_TARGET != HWY_SCALAR
  const hn::Rebind<hwy::float16_t, Floats> halves;
  auto* words = reinterpret_cast<hwy::float16_t*>(to);
  for (; i + kWidth <= count; i += kWidth)
    hn::StoreU(hn::DemoteTo(halves, load(from + i)), halves, words + i);
#endif
  for (; i < count; ++i) to[i] = Float16(from[i]);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(widen_blocks);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(round_in_place);
HWY_EXPORT(widen_half);
HWY_EXPORT(narrow_half);

void convert_range(const Bfloat16* from, float* to, Dim count) {
  HWY_DYNAMIC_DISPATCH(widen_blocks)(from, 1, count, count, to);
}
void convert_range(const float* from, Bfloat16* to, Dim count) {
  HWY_DYNAMIC_DISPATCH(narrow_bf16)(from, to, count);
}
void convert_range(const Float16* from, float* to, Dim count) {
  HWY_DYNAMIC_DISPATCH(widen_half)(from, to, count);
}
void convert_range(const float* from, Float16* to, Dim count) {
  HWY_DYNAMIC_DISPATCH(narrow_half)(from, to, count);
}
void round_range(float* x, Dim count) { HWY_DYNAMIC_DISPATCH(round_in_place)(x, count); }
void widen_rows(const Bfloat16* from, Dim rows, Dim stride, Dim width, float* to) {
  HWY_DYNAMIC_DISPATCH(widen_blocks)(from, rows, stride, width, to);
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
