// Number: a plain number in place of a tensor.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

namespace pl {

// Whole ones leave integer tensors integers, and are exact up to the ends of int64.
struct Number {
  template <class T>
  requires(std::integral<T> || std::floating_point<T>) Number(T number)
      : value(static_cast<double>(number)), whole(std::integral<T>) {
    if constexpr (std::integral<T>) exact = static_cast<int64_t>(number);
  }
  // As an element of a tensor: whole numbers wrap where they are too large, others saturate.
  template <class T>
  T as() const;
  Number operator-() const;

  double value;
  int64_t exact = 0;  // of whole ones
  bool whole;
};

// A floating number as an integer: without its fraction, the nearest that there is, 0 for NaN.
template <std::integral To, std::floating_point From>
To saturated(From x) {
  // The range's upper end as From: exact, or one above the largest To, which then compares right.
  constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
  constexpr From high = static_cast<From>(std::numeric_limits<To>::max());
  if (!(x > low)) return x <= low ? std::numeric_limits<To>::min() : To(0);
  return x >= high ? std::numeric_limits<To>::max() : static_cast<To>(x);
}

template <class T>
T Number::as() const {
  if constexpr (std::same_as<T, bool>)
    return value != 0;
  else if constexpr (std::floating_point<T>)
    return static_cast<T>(value);
  else
    return whole ? static_cast<T>(exact) : saturated<T>(value);
}

inline Number Number::operator-() const {
  Number negative(-value);
  negative.whole = whole;
  negative.exact = static_cast<int64_t>(-static_cast<uint64_t>(exact));
  return negative;
}

}  // namespace pl
