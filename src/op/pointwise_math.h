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
  if constexpr (kind == Unary::sigmoid) {
    // The exponent is never positive, so nothing overflows.
    const T e = std::exp(-std::fabs(x));
    return (x >= T(0) ? T(1) : e) / (T(1) + e);
  }
}

}  // namespace pl::cpu
