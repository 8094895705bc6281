// How operands are read while a result is written in order: merged dimensions with strides, small
// enough to be a kernel's parameter.
#pragma once

#include <array>
#include <span>

#include "tensor/shape.h"

namespace pl::cuda {

inline constexpr int kMostAxes = 8;

// For each dimension of the result, outermost first: its size and how far each of N operands steps.
template <int N>
struct Walk {
  int rank = 0;
  int64_t sizes[kMostAxes] = {};
  int64_t strides[N][kMostAxes] = {};
  int64_t total = 1;

  // Appends a dimension, joined with the one before where every operand allows.
  bool append(int64_t size, const std::array<int64_t, N>& steps) {
    total *= size;
    if (size == 1) return true;
    bool joins = rank > 0;
    for (int i = 0; joins && i < N; ++i) joins = strides[i][rank - 1] == steps[i] * size;
    if (!joins && rank == kMostAxes) return false;
    const int at = joins ? rank - 1 : rank++;
    sizes[at] = joins ? sizes[at] * size : size;
    for (int i = 0; i < N; ++i) strides[i][at] = steps[i];
    return true;
  }
  // Each operand lies like the result.
  bool flat() const {
    if (rank == 0) return true;
    if (rank > 1) return false;
    for (int i = 0; i < N; ++i)
      if (strides[i][0] != 1) return false;
    return true;
  }
};

// Elements between neighbours along the result's dimensions, 0 where `shape` is stretched; as
// NumPy broadcasts.
inline std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& out) {
  std::vector<int64_t> strides(static_cast<size_t>(out.rank()), 0);
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int at = axis + out.rank() - shape.rank();
    strides[static_cast<size_t>(at)] = shape[axis] == 1 ? 0 : step;
    step *= shape[axis];
  }
  return strides;
}

// False: more dimensions than a walk has room for.
template <int N>
bool broadcast_walk(const std::array<const Shape*, N>& shapes, const Shape& out, Walk<N>* walk) {
  std::array<std::vector<int64_t>, N> strides;
  for (size_t i = 0; i < N; ++i) strides[i] = broadcast_strides(*shapes[i], out);
  for (int axis = 0; axis < out.rank(); ++axis) {
    std::array<int64_t, N> steps;
    for (size_t i = 0; i < N; ++i) steps[i] = strides[i][static_cast<size_t>(axis)];
    if (!walk->append(out[axis], steps)) return false;
  }
  return true;
}

}  // namespace pl::cuda
