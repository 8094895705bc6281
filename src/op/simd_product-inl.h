// A register-blocked product of small float32 matrices. Included by `*_simd.cc` files inside their
// namespace pl::cpu::HWY_NAMESPACE, after simd_math-inl.h, once for each target. Sums run in order
// of the inner index, fused where the target can.

// Sums held in registers: kRows rows of kVectors vectors, 24 of 32 registers or 12 of 16.
constexpr int kRows = 6;
constexpr int kVectors = kWidth == 16 ? 4 : 2;

// c (rows, vectors * kWidth) = or += a (rows, depth) x b (depth, vectors * kWidth). Element (i, k)
// of a is a[i * stride + k] or, if `across`, a[k * stride + i].
template <int rows, int vectors, bool across>
HWY_INLINE void block(const float* a, Dim stride, const float* b, Dim b_stride, Dim depth, float* c,
                      Dim c_stride, bool add) {
  const Floats d;
  FloatVector sum[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = add ? hn::LoadU(d, c + r * c_stride + v * kWidth) : hn::Zero(d);
  for (Dim k = 0; k < depth; ++k) {
    FloatVector right[vectors];
    for (int v = 0; v < vectors; ++v) right[v] = hn::LoadU(d, b + k * b_stride + v * kWidth);
    for (int r = 0; r < rows; ++r) {
      const auto left = hn::Set(d, across ? a[k * stride + r] : a[r * stride + k]);
      for (int v = 0; v < vectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * kWidth);
}

template <int rows, bool across>
HWY_INLINE void band_of(const float* a, Dim stride, const float* b, Dim b_stride, Dim depth,
                        float* c, Dim c_stride, Dim columns, bool add) {
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
template <bool across>
void band(Dim rows, const float* a, Dim stride, const float* b, Dim b_stride, Dim depth, float* c,
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
