// A register-blocked product of small matrices of terms (simd_pair-inl.h) with float32 sums.
// Included by `*_simd.cc` files inside their namespace pl::cpu::HWY_NAMESPACE, after
// simd_math-inl.h, once for each target. Sums run in order of the inner index, fused where the
// target can.
#include "op/simd_pair-inl.h"

// Sums held in registers: kRows rows of kVectors vectors, 24 of 32 registers or 12 of 16.
constexpr int kRows = 6;
constexpr int kVectors = kWidth == 16 ? 4 : 2;

// c (rows, vectors * kWidth) = or += a (rows, depth) x b (depth, vectors * kWidth). Element (i, k)
// of a is a[i * stride + k] or, if `across`, a[k * stride + i].
template <int rows, int vectors, bool across, class E>
HWY_INLINE void block(const E* a, Dim stride, const E* b, Dim b_stride, Dim depth, float* c,
                      Dim c_stride, bool add) {
  const Floats d;
  FloatVector sum[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = add ? hn::LoadU(d, c + r * c_stride + v * kWidth) : hn::Zero(d);
  for (Dim k = 0; k < depth; ++k) {
    decltype(load_terms(b)) right[vectors];
    for (int v = 0; v < vectors; ++v) right[v] = load_terms(b + k * b_stride + v * kWidth);
    for (int r = 0; r < rows; ++r) {
      const auto left = same_terms(across ? a + k * stride + r : a + r * stride + k);
      for (int v = 0; v < vectors; ++v) sum[r][v] = multiply_add(left, right[v], sum[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * kWidth);
}

template <int rows, bool across, class E>
HWY_INLINE void band_of(const E* a, Dim stride, const E* b, Dim b_stride, Dim depth, float* c,
                        Dim c_stride, Dim columns, bool add) {
  Dim j = 0;
  for (; j + kVectors * kWidth <= columns; j += kVectors * kWidth)
    block<rows, kVectors, across>(a, stride, b + j, b_stride, depth, c + j, c_stride, add);
  if constexpr (kVectors == 4) {
    for (; j + 3 * kWidth <= columns; j += 3 * kWidth)
      block<rows, 3, across>(a, stride, b + j, b_stride, depth, c + j, c_stride, add);
    for (; j + 2 * kWidth <= columns; j += 2 * kWidth)
      block<rows, 2, across>(a, stride, b + j, b_stride, depth, c + j, c_stride, add);
  }
  for (; j < columns; j += kWidth)
    block<rows, 1, across>(a, stride, b + j, b_stride, depth, c + j, c_stride, add);
}

// `block` for up to kRows rows and columns that are a multiple of 16.
template <bool across, class E>
void band(Dim rows, const E* a, Dim stride, const E* b, Dim b_stride, Dim depth, float* c,
          Dim c_stride, Dim columns, bool add) {
  switch (rows) {
    case 1:
      return band_of<1, across>(a, stride, b, b_stride, depth, c, c_stride, columns, add);
    case 2:
      return band_of<2, across>(a, stride, b, b_stride, depth, c, c_stride, columns, add);
    case 3:
      return band_of<3, across>(a, stride, b, b_stride, depth, c, c_stride, columns, add);
    case 4:
      return band_of<4, across>(a, stride, b, b_stride, depth, c, c_stride, columns, add);
    case 5:
      return band_of<5, across>(a, stride, b, b_stride, depth, c, c_stride, columns, add);
    default:
      return band_of<6, across>(a, stride, b, b_stride, depth, c, c_stride, columns, add);
  }
}

// to (columns, rows) = the transpose of from (rows, columns), `stride` apart; both multiples of 4.
template <class E>
void transpose_block(const E* from, Dim stride, Dim rows, Dim columns, E* to) {
  static_assert(sizeof(E) == sizeof(float));  // whose bits are not looked at
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    for (Dim r = 0; r < rows; ++r)
      for (Dim c = 0; c < columns; ++c) to[c * rows + r] = from[r * stride + c];
  } else {
    // Interleave*: found by their arguments, as one lane alone has none of them.
    const hn::FixedTag<float, sizeof(E)> d;
    const hn::RepartitionToWide<decltype(d)> pairs;
    for (Dim r = 0; r < rows; r += 4)
      for (Dim c = 0; c < columns; c += 4) {
        auto row = [&](Dim k) HWY_ATTR {
          return hn::LoadU(d, reinterpret_cast<const float*>(from + (r + k) * stride + c));
        };
        auto put = [&](Dim k, auto v) HWY_ATTR {
          hn::StoreU(hn::BitCast(d, v), d, reinterpret_cast<float*>(to + (c + k) * rows + r));
        };
        const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
        const auto a = hn::BitCast(pairs, InterleaveLower(d, r0, r1));
        const auto b = hn::BitCast(pairs, InterleaveLower(d, r2, r3));
        const auto e = hn::BitCast(pairs, InterleaveUpper(d, r0, r1));
        const auto f = hn::BitCast(pairs, InterleaveUpper(d, r2, r3));
        put(0, InterleaveLower(pairs, a, b));
        put(1, InterleaveUpper(pairs, a, b));
        put(2, InterleaveLower(pairs, e, f));
        put(3, InterleaveUpper(pairs, e, f));
      }
  }
}
