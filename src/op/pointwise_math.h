// What each pointwise op computes of one element, for the plain kernels: those of the ops
// themselves and those that run several of them in one pass.
#pragma once

#include <cmath>
#include <type_traits>

#include "op/pointwise.h"

namespace pl::cpu {

// Integers wrap: computed unsigned, where overflow is defined.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;

// As NumPy and PyTorch have them: the quotient from the exact remainder, which takes b's sign.
template <class T>
T floor_divided(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return T(0);
    if (b == -1) return static_cast<T>(Wrapping<T>(0) - Wrapping<T>(a));
    return a / b - T(a % b != 0 && (a < 0) != (b < 0));
  } else {
    if (b == T(0)) return a / b;
    const T rest = std::fmod(a, b);
    const T quotient = (a - rest) / b - T(rest != T(0) && (rest < T(0)) != (b < T(0)));
    const T whole = std::floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
  }
}

template <class T>
T modulo(T a, T b) {
  T rest;
  if constexpr (std::is_integral_v<T>)
    rest = b == 0 || b == -1 ? T(0) : a % b;
  else
    rest = std::fmod(a, b);
  return rest != T(0) && (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}

template <class T>
T raised(T base, T power) {
  if constexpr (std::is_integral_v<T>) {
    if (power < 0) return base == 1 ? T(1) : base != -1 ? T(0) : power % 2 == 0 ? T(1) : T(-1);
    Wrapping<T> result = 1;
    for (auto square = static_cast<Wrapping<T>>(base); power > 0; power /= 2, square *= square)
      if (power % 2 != 0) result *= square;
    return static_cast<T>(result);
  } else {
    return std::pow(base, power);
  }
}

template <Binary kind, class T>
T compute(T a, T b) {
  using W = Wrapping<T>;
  if constexpr (kind == Binary::add) return static_cast<T>(W(a) + W(b));
  if constexpr (kind == Binary::subtract) return static_cast<T>(W(a) - W(b));
  if constexpr (kind == Binary::multiply) return static_cast<T>(W(a) * W(b));
  if constexpr (kind == Binary::divide) return a / b;
  if constexpr (kind == Binary::maximum) return (a > b) | (a != a) ? a : b;
  if constexpr (kind == Binary::minimum) return (a < b) | (a != a) ? a : b;
  if constexpr (kind == Binary::equal_mask) return a == b ? T(1) : T(0);
  if constexpr (kind == Binary::greater_mask) return a > b ? T(1) : T(0);
  if constexpr (kind == Binary::greater_equal_mask) return a >= b ? T(1) : T(0);
  if constexpr (kind == Binary::floor_divide) return floor_divided(a, b);
  if constexpr (kind == Binary::mod) return modulo(a, b);
  if constexpr (kind == Binary::power) return raised(a, b);
}

template <Unary kind, class T>
T compute(T x) {
  if constexpr (kind == Unary::negative) return -x;
  if constexpr (kind == Unary::exp) return std::exp(x);
  if constexpr (kind == Unary::log) return std::log(x);
  if constexpr (kind == Unary::sqrt) return std::sqrt(x);
  if constexpr (kind == Unary::square) return x * x;
  if constexpr (kind == Unary::tanh) return std::tanh(x);
  if constexpr (kind == Unary::abs) return std::fabs(x);
  if constexpr (kind == Unary::sign) return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
  if constexpr (kind == Unary::softplus)
    return (x < T(0) ? T(0) : x) + std::log1p(std::exp(-std::fabs(x)));
  if constexpr (kind == Unary::expm1) return std::expm1(x);
  if constexpr (kind == Unary::sin) return std::sin(x);
  if constexpr (kind == Unary::cos) return std::cos(x);
  if constexpr (kind == Unary::floor) return std::floor(x);
  if constexpr (kind == Unary::ceil) return std::ceil(x);
  if constexpr (kind == Unary::trunc) return std::trunc(x);
  if constexpr (kind == Unary::round) return std::nearbyint(x);
  if constexpr (kind == Unary::sigmoid) {
    // The exponent is never positive, so nothing overflows.
    const T e = std::exp(-std::fabs(x));
    return (x >= T(0) ? T(1) : e) / (T(1) + e);
  }
}

}  // namespace pl::cpu
