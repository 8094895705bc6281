// What reductions join, and how. Included by `reduce_simd.cc` inside its namespace
// pl::cpu::HWY_NAMESPACE, once for each target, hence without `#pragma once`.

template <class T>
constexpr bool kReal = std::is_floating_point_v<T>;
template <class T>
using Wrapping = std::make_unsigned_t<T>;  // integers wrap

struct Plus {
  static constexpr Dim kBytes = 64;  // of lanes along a row: what the order of sums depends on
  template <class T>
  static constexpr T start = T(0);
  template <class D, class V>
  static HWY_INLINE V join(D, V a, V b) {
    return hn::Add(a, b);
  }
  template <class T>
  static HWY_INLINE T join(T a, T b) {
    if constexpr (kReal<T>)
      return a + b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Times {
  static constexpr Dim kBytes = 64;
  template <class T>
  static constexpr T start = T(1);
  template <class D, class V>
  static HWY_INLINE V join(D d, V a, V b) {
    using T = hn::TFromD<D>;
    if constexpr (sizeof(T) == 8 && !kReal<T>) {  // the library has no product of these
      T of_a[hn::MaxLanes(D())], of_b[hn::MaxLanes(D())];
      hn::StoreU(a, d, of_a);
      hn::StoreU(b, d, of_b);
      for (size_t i = 0; i < hn::MaxLanes(d); ++i) of_a[i] = join(of_a[i], of_b[i]);
      return hn::LoadU(d, of_a);
    } else {
      return hn::Mul(a, b);
    }
  }
  template <class T>
  static HWY_INLINE T join(T a, T b) {
    if constexpr (kReal<T>)
      return a * b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// A NaN wins. `|` rather than `||`: without branches loops vectorise.
template <bool larger>
struct Extreme {
  static constexpr Dim kBytes = 256;
  template <class T>
  static constexpr T start = kReal<T> ? (larger ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::infinity())
                             : larger ? std::numeric_limits<T>::lowest()
                                      : std::numeric_limits<T>::max();
  template <class D, class V>
  static HWY_INLINE V join(D, V a, V b) {
    const auto joined = extreme_of<larger>(a, b);
    if constexpr (kReal<hn::TFromD<D>>)
      return hn::IfThenElse(hn::Eq(a, a), joined, a);
    else
      return joined;
  }
  template <class T>
  static HWY_INLINE T join(T a, T b) {
    return (larger ? a > b : a < b) | (a != a) ? a : b;
  }
};

template <class In>
using Number = std::conditional_t<std::is_same_v<In, Bfloat16>, float, In>;
template <class In>
using Exact = std::conditional_t<kReal<Number<In>>, double, In>;

// A reduction of In: joined as `Join` says, as Part over a few rows, as Total beyond.
template <class In_, class Join_, class Part_, class Total_, bool squares = false>
struct Rule {
  using In = In_;
  using Join = Join_;
  using Part = Part_;
  using Total = Total_;
  template <class V>
  static HWY_INLINE V term(V v) {
    if constexpr (!squares)
      return v;
    else if constexpr (std::is_arithmetic_v<V>)
      return v * v;
    else
      return hn::Mul(v, v);
  }
  static Total end(Total total) {
    if constexpr (squares)
      return std::sqrt(total);
    else
      return total;
  }
};
template <class In>
using Sum = Rule<In, Plus, Number<In>, Exact<In>>;
template <class In>
using Product = Rule<In, Times, Number<In>, Exact<In>>;
template <class In>
using Norm = Rule<In, Plus, double, double, true>;
template <class In>
using Largest = Rule<In, Extreme<true>, In, In>;
template <class In>
using Smallest = Rule<In, Extreme<false>, In, In>;

// Elements as numbers of D, and back.
template <class D, class In>
HWY_INLINE hn::Vec<D> load(D d, const In* x) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<In, Bfloat16>) {
    const hn::Rebind<uint16_t, D> halves;
    const hn::Rebind<uint32_t, D> words;
    const hn::Rebind<float, D> floats;
    const auto bits = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(x));
    const auto wide = hn::BitCast(floats, hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
    if constexpr (std::is_same_v<T, float>)
      return wide;
    else
      return hn::PromoteTo(d, wide);
  } else if constexpr (std::is_same_v<T, In>) {
    return hn::LoadU(d, x);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<In, D>(), x));
  }
}
template <class To, class In>
HWY_INLINE To number(In x) {
  if constexpr (std::is_same_v<In, Bfloat16>)
    return static_cast<To>(static_cast<float>(x));
  else
    return static_cast<To>(x);
}
template <class Out, class Total>
HWY_INLINE Out element(Total x) {
  if constexpr (std::is_same_v<Out, Bfloat16>)
    return Bfloat16(static_cast<float>(x));
  else
    return static_cast<Out>(x);
}
