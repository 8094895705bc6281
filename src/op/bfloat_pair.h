// Two bfloat16 that a processor multiplies and adds in one go: terms k and k + 1 of a sum.
#pragma once

#include <cstring>

#include "tensor/bfloat16.h"

namespace pl {

struct BfloatPair {
  Bfloat16 first, second;
};

// What the products of images of T have for terms: numbers, or pairs of them.
template <class T>
struct TermOf {
  using Type = T;
};
template <>
struct TermOf<Bfloat16> {
  using Type = BfloatPair;
};
template <class T>
using Term = typename TermOf<T>::Type;
template <class T>
inline constexpr int64_t kTermSize = sizeof(Term<T>) / sizeof(T);  // numbers in a term

}  // namespace pl
