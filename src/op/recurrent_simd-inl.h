// What the SIMD kernels of recurrent ops share. Included by `*_simd.cc` files inside their
// namespace pl::cpu::HWY_NAMESPACE, after simd_math-inl.h and simd_product-inl.h, once for each
// target.
//
// A thread takes its samples through all steps on its own: nothing waits for another thread within
// a sequence. Per step, their states meet the packed weights panel by panel, in blocks of up to
// kRows samples; the gates of a unit are neighbours in a panel, so that a block goes through its
// cell while it is in the first cache. Sums run in order of the units, whatever the block.

// Columns that a panel has for each gate.
constexpr Dim kPanelUnits = 16;
// Samples that go through all steps together: their states stay in the second cache.
constexpr Dim kGroup = 48;

HWY_INLINE FloatVector squash_of(Squash kind, FloatVector x) {
  const Floats d;
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  switch (kind) {
    case Squash::tanh:
      return tanh_of(x);
    case Squash::sigmoid:
      return sigmoid_of(x);
    case Squash::relu:
      return hn::IfThenElse(hn::Le(x, zero), zero, x);
    case Squash::hard_sigmoid: {
      const auto y = hn::Div(hn::Add(x, hn::Set(d, 3.0f)), hn::Set(d, 6.0f));
      return hn::IfThenElse(hn::Le(y, zero), zero, hn::IfThenElse(hn::Ge(y, one), one, y));
    }
    default:
      return x;
  }
}

// By the result y.
HWY_INLINE FloatVector squash_slope_of(Squash kind, FloatVector y) {
  const Floats d;
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  switch (kind) {
    case Squash::tanh:
      return hn::Sub(one, hn::Mul(y, y));
    case Squash::sigmoid:
      return hn::Mul(y, hn::Sub(one, y));
    case Squash::relu:
      return hn::IfThenElse(hn::Gt(y, zero), one, zero);
    case Squash::hard_sigmoid:
      return hn::IfThenElse(hn::And(hn::Gt(y, zero), hn::Lt(y, one)), hn::Set(d, 1.0f / 6.0f),
                            zero);
    default:
      return one;
  }
}

// Calls body(first, count) for samples [begin, end) in blocks of nearly equal size, `most` at most.
template <class Body>
HWY_INLINE void in_blocks(Dim begin, Dim end, Dim most, const Body& body) {
  const Dim count = end - begin, blocks = (count + most - 1) / most;
  for (Dim i = 0; i < blocks; ++i) {
    const Dim first = begin + count * i / blocks;
    body(first, begin + count * (i + 1) / blocks - first);
  }
}

// Panel `panel` of u (H, width) for products h x u: [k][gate][unit], of the gates [first, first +
// gates); zeros behind the last unit.
template <class T>
HWY_INLINE void pack_gates(const T* u, Dim units, Dim width, Dim first, Dim gates, Dim panel,
                           float* to) {
  const Dim j = panel * kPanelUnits, count = std::min(kPanelUnits, units - j);
  for (Dim k = 0; k < units; ++k)
    for (Dim g = 0; g < gates; ++g, to += kPanelUnits) {
      const T* row = u + k * width + (first + g) * units + j;
      for (Dim i = 0; i < count; ++i) to[i] = static_cast<float>(row[i]);
      for (Dim i = count; i < kPanelUnits; ++i) to[i] = 0;
    }
}

// Columns [j, j + columns) of u^T (N, H) for products dz x u^T, with zeros behind H; u (H, width),
// of which columns [first, first + depth) count. `columns` is a multiple of 16.
template <class T>
HWY_INLINE void pack_transposed(const T* u, Dim units, Dim width, Dim first, Dim depth, Dim j,
                                Dim columns, float* to) {
  for (Dim i = 0; i < columns; ++i) {
    const T* row = u + (j + i) * width + first;
    for (Dim k = 0; k < depth; ++k)
      to[k * columns + i] = j + i < units ? static_cast<float>(row[k]) : 0.0f;
  }
}
