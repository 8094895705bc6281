// Conversion between bfloat16 and float32, compiled once for each SIMD target.
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
void narrow_range(const float* from, Bfloat16* to, Dim count) { convert(from, to, count); }
void round_in_place(float* x, Dim count) {
  along_row(count, [&](Dim i, Dim n) HWY_ATTR {
    Bfloat16 rounded[kLanes];
    store(load(x + i, n), rounded);
    store(load(rounded), x + i, n);
  });
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(widen_blocks);
HWY_EXPORT(narrow_range);
HWY_EXPORT(round_in_place);

void convert_range(const Bfloat16* from, float* to, Dim count) {
  HWY_DYNAMIC_DISPATCH(widen_blocks)(from, 1, count, count, to);
}
void convert_range(const float* from, Bfloat16* to, Dim count) {
  HWY_DYNAMIC_DISPATCH(narrow_range)(from, to, count);
}
void round_range(float* x, Dim count) { HWY_DYNAMIC_DISPATCH(round_in_place)(x, count); }
void widen_rows(const Bfloat16* from, Dim rows, Dim stride, Dim width, float* to) {
  HWY_DYNAMIC_DISPATCH(widen_blocks)(from, rows, stride, width, to);
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
