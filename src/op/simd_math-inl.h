// Elementary functions on SIMD vectors of float32. Included by `*_simd.cc` files inside their
// namespace pl::cpu::HWY_NAMESPACE, once for each target, hence without `#pragma once`. Products
// and sums are not fused, so that all targets give the same bits.

// Sums along rows run in 16 lanes whatever the vector width.
constexpr Dim kLanes = 16;
using Floats = hn::CappedTag<float, kLanes>;
using FloatVector = hn::Vec<Floats>;
constexpr Dim kWidth = static_cast<Dim>(hn::MaxLanes(Floats()));

// A vector of elements: float32, or bfloat16 widened.
HWY_INLINE FloatVector load(const float* x) { return hn::LoadU(Floats(), x); }
HWY_INLINE FloatVector load(const Bfloat16* x) {
  const hn::RebindToUnsigned<Floats> words;
  const hn::Rebind<uint16_t, Floats> halves;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(x));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}
HWY_INLINE void store(FloatVector v, float* to) { hn::StoreU(v, Floats(), to); }
// Rounds to nearest, ties to even; NaN stays NaN.
HWY_INLINE void store(FloatVector v, Bfloat16* to) {
  const hn::RebindToUnsigned<Floats> words;
  const hn::RebindToSigned<Floats> numbers;
  const hn::Rebind<uint16_t, Floats> halves;
  const auto word = hn::BitCast(words, v);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(words, 1));
  const auto rounded = hn::Add(word, hn::Add(odd, hn::Set(words, 0x7FFF)));
  const auto quiet = hn::Or(word, hn::Set(words, 0x400000));
  const auto bits =
      hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(words, hn::Eq(v, v)), rounded, quiet));
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(numbers, bits)), halves,
             reinterpret_cast<uint16_t*>(to));
}

// The first `count` < kWidth elements; zeros behind.
HWY_INLINE FloatVector load_part(const float* x, Dim count) {
  float part[kLanes] = {};
  for (Dim i = 0; i < count; ++i) part[i] = x[i];
  return hn::LoadU(Floats(), part);
}
HWY_INLINE void store_part(FloatVector v, float* to, Dim count) {
  float part[kLanes];
  hn::StoreU(v, Floats(), part);
  for (Dim i = 0; i < count; ++i) to[i] = part[i];
}

HWY_INLINE FloatVector load_part(const Bfloat16* x, Dim count) {
  float part[kLanes] = {};
  for (Dim i = 0; i < count; ++i) part[i] = static_cast<float>(x[i]);
  return hn::LoadU(Floats(), part);
}
HWY_INLINE void store_part(FloatVector v, Bfloat16* to, Dim count) {
  float part[kLanes];
  hn::StoreU(v, Floats(), part);
  for (Dim i = 0; i < count; ++i) to[i] = Bfloat16(part[i]);
}

// The first `count` <= kWidth elements; zeros behind.
template <class T>
HWY_INLINE FloatVector load(const T* x, Dim count) {
  return count == kWidth ? load(x) : load_part(x, count);
}
template <class T>
HWY_INLINE void store(FloatVector v, T* to, Dim count) {
  if (count == kWidth)
    store(v, to);
  else
    store_part(v, to, count);
}

// Calls body(j, n) for the elements [j, j + n) of a row, n = kWidth but at its end.
template <class Body>
HWY_INLINE void along_row(Dim count, const Body& body) {
  Dim j = 0;
  for (; j + kWidth <= count; j += kWidth) body(j, kWidth);
  if (j < count) body(j, count - j);
}

// The polynomial with these coefficients, highest power first, at x. Pairs of terms are summed side
// by side, which halves the chain of dependent steps.
template <size_t count>
HWY_INLINE FloatVector polynomial(FloatVector x, const float (&coefficients)[count]) {
  const Floats d;
  auto pair = [&](size_t i) HWY_ATTR {
    return hn::Add(hn::Mul(hn::Set(d, coefficients[i]), x), hn::Set(d, coefficients[i + 1]));
  };
  const auto square = hn::Mul(x, x);
  FloatVector p = count % 2 ? hn::Set(d, coefficients[0]) : pair(0);
  for (size_t i = count % 2 ? 1 : 2; i < count; i += 2) p = hn::Add(hn::Mul(p, square), pair(i));
  return p;
}

// e to the v within 2 units in the last place (Cephes's polynomial), whatever v; NaN stays NaN.
HWY_INLINE FloatVector exp_of(FloatVector v) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // Beyond these bounds the result is 0 or infinity.
  const auto x = hn::Min(hn::Max(v, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const auto k = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  const auto kf = hn::ConvertTo(d, k);
  // r = x - k * ln 2, with ln 2 in two parts so that the first product is exact.
  auto r = hn::Sub(x, hn::Mul(kf, hn::Set(d, 0.693359375f)));
  r = hn::Sub(r, hn::Mul(kf, hn::Set(d, -2.12194440e-4f)));
  constexpr float kCoefficients[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                     4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  auto p = polynomial(r, kCoefficients);
  p = hn::Add(hn::Add(hn::Mul(p, hn::Mul(r, r)), r), hn::Set(d, 1.0f));
  // 2 to the k in two steps: neither factor leaves the range of normal numbers.
  const auto half = hn::ShiftRight<1>(k);
  auto power = [&](auto exponent) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
  };
  const auto value = hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(k, half)));
  return hn::IfThenElse(hn::Eq(v, v), value, v);
}

// e to the v - 1 within 3 units in the last place, near 0 too; the sign of 0 and NaN stay. As
// exp_of, but 1 is taken off before the power of two is multiplied in.
HWY_INLINE FloatVector expm1_of(FloatVector v) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const auto x = hn::Min(hn::Max(v, hn::Set(d, -30.0f)), hn::Set(d, 89.0f));
  const auto k = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  const auto kf = hn::ConvertTo(d, k);
  auto r = hn::Sub(x, hn::Mul(kf, hn::Set(d, 0.693359375f)));
  r = hn::Sub(r, hn::Mul(kf, hn::Set(d, -2.12194440e-4f)));
  constexpr float kCoefficients[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                     4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  const auto near = hn::Add(hn::Mul(polynomial(r, kCoefficients), hn::Mul(r, r)), r);
  auto power = [&](auto exponent) HWY_ATTR {
    const auto biased = hn::Max(hn::Add(exponent, hn::Set(di, 127)), hn::Zero(di));
    return hn::BitCast(d, hn::ShiftLeft<23>(biased));
  };
  const auto half = hn::ShiftRight<1>(k);
  const auto scaled = hn::Add(near, hn::Sub(hn::Set(d, 1.0f), power(hn::Neg(k))));
  const auto value = hn::Mul(hn::Mul(scaled, power(half)), power(hn::Sub(k, half)));
  return hn::IfThenElse(hn::Eq(v, v), hn::CopySign(value, v), v);
}

// 1 / (1 + e to the -x); the exponent is never positive, so nothing overflows.
HWY_INLINE FloatVector sigmoid_of(FloatVector x) {
  const Floats d;
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp_of(hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

// Cephes's: a polynomial near 0, 1 - 2 / (1 + e to the 2 |x|) with x's sign elsewhere.
HWY_INLINE FloatVector tanh_of(FloatVector x) {
  const Floats d;
  const auto one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const auto size = hn::Abs(x), square = hn::Mul(x, x);
  constexpr float kCoefficients[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                                     1.33314422036e-1f, -3.33332819422e-1f};
  const auto near = hn::Add(hn::Mul(hn::Mul(polynomial(square, kCoefficients), square), x), x);
  const auto e = exp_of(hn::Mul(two, size));
  const auto far = hn::Sub(one, hn::Div(two, hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), near, hn::CopySign(far, x));
}

// max(x, 0) + log(1 + e), e = e to the -|x| in (0, 1]. With s = e / (2 + e), at most 1/3, the
// logarithm is 2 s (1 + s^2 / 3 + s^4 / 5 + ...).
HWY_INLINE FloatVector softplus_of(FloatVector x) {
  const Floats d;
  const auto two = hn::Set(d, 2.0f), zero = hn::Zero(d);
  const auto e = exp_of(hn::Neg(hn::Abs(x)));
  const auto s = hn::Div(e, hn::Add(e, two)), square = hn::Mul(s, s);
  constexpr float kCoefficients[] = {1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9,
                                     1.0f / 7,  1.0f / 5,  1.0f / 3,  1.0f};
  const auto log = hn::Mul(hn::Mul(two, s), polynomial(square, kCoefficients));
  return hn::Add(hn::IfThenElse(hn::Lt(x, zero), zero, x), log);
}
