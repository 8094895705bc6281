// The functions of gates and their slopes at one number, for plain kernels.
#pragma once

#include <cmath>

#include "op/recurrent.h"

namespace pl::cpu {

template <class T>
T squash(Squash kind, T x) {
  switch (kind) {
    case Squash::tanh:
      return std::tanh(x);
    case Squash::sigmoid: {
      const T e = std::exp(-std::fabs(x));  // never overflows
      return (x >= T(0) ? T(1) : e) / (T(1) + e);
    }
    case Squash::relu:
      return x <= T(0) ? T(0) : x;
    case Squash::hard_sigmoid: {
      const T y = (x + T(3)) / T(6);
      return y <= T(0) ? T(0) : y >= T(1) ? T(1) : y;
    }
    default:
      return x;
  }
}

// By the result y.
template <class T>
T squash_slope(Squash kind, T y) {
  switch (kind) {
    case Squash::tanh:
      return T(1) - y * y;
    case Squash::sigmoid:
      return y * (T(1) - y);
    case Squash::relu:
      return y > T(0) ? T(1) : T(0);
    case Squash::hard_sigmoid:
      return y > T(0) && y < T(1) ? T(1) / T(6) : T(0);
    default:
      return T(1);
  }
}

}  // namespace pl::cpu
