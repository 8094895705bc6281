// CPU kernels of transpose: square blocks for batches of matrices, a walk over indices for the
// rest.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/transpose.h"

namespace pl::cpu {
namespace {

constexpr Dim kBlock = 16;  // a block's rows and columns, small enough for both to stay in cache

struct Axis {
  Dim size, stride;  // of the result's dimension; the stride is in the operand
};

// The result's dimensions without those of size 1, neighbours in the operand merged.
std::vector<Axis> merged_axes(const PrepareCall& call) {
  const Shape &x = call.in[0].shape, &y = call.out[0].shape;
  std::vector<Dim> strides(static_cast<size_t>(x.rank()), 1);
  for (int axis = x.rank() - 2; axis >= 0; --axis)
    strides[static_cast<size_t>(axis)] = strides[static_cast<size_t>(axis) + 1] * x[axis + 1];
  std::vector<Axis> axes;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const auto from = static_cast<size_t>(call.attrs.list("perm")[static_cast<size_t>(axis)]);
    const Axis next{y[axis], strides[from]};
    if (next.size == 1) continue;
    if (!axes.empty() && axes.back().stride == next.stride * next.size)
      axes.back() = {axes.back().size * next.size, next.stride};
    else
      axes.push_back(next);
  }
  return axes;
}

template <class T>
std::unique_ptr<Kernel> blocked(Dim batch, Dim rows, Dim columns, int threads) {
  const Dim row_blocks = (rows + kBlock - 1) / kBlock;
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);  // (batch, columns, rows)
    T* y = static_cast<T*>(out[0]);             // (batch, rows, columns)
    const Dim total = batch * rows * columns;
    parallel_ranges(threads, batch * row_blocks, total, [&](Dim begin, Dim end) {
      for (Dim task = begin; task < end; ++task) {
        const Dim matrix = task / row_blocks * rows * columns, first = task % row_blocks * kBlock;
        const Dim last = std::min(first + kBlock, rows);
        for (Dim c0 = 0; c0 < columns; c0 += kBlock) {
          const Dim c1 = std::min(c0 + kBlock, columns);
          for (Dim r = first; r < last; ++r)
            for (Dim c = c0; c < c1; ++c) y[matrix + r * columns + c] = x[matrix + c * rows + r];
        }
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> reference(const std::vector<Axis>& axes, Dim total, int threads) {
  auto kernel = make_kernel([=](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(threads, total, total * 8, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        Dim from = 0, index = i;
        for (size_t d = axes.size(); d-- > 0;) {
          from += index % axes[d].size * axes[d].stride;
          index /= axes[d].size;
        }
        y[i] = x[from];
      }
    });
  });
  kernel->footprint += static_cast<Bytes>(axes.size() * sizeof(Axis));
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> transpose_blocked(const PrepareCall& call) {
  if (call.out[0].elements() == 0) return nullptr;
  std::vector<Axis> axes = merged_axes(call);
  if (axes.size() == 2) axes.insert(axes.begin(), {1, axes[0].size * axes[1].size});
  if (axes.size() != 3) return nullptr;
  const Dim rows = axes[1].size, columns = axes[2].size;
  if (axes[0].stride != rows * columns || axes[1].stride != 1 || axes[2].stride != rows)
    return nullptr;
  return dispatch_size(call.in[0].dtype, [&]<class T>() {
    return blocked<T>(axes[0].size, rows, columns, call.backend.threads());
  });
}

std::unique_ptr<Kernel> transpose_reference(const PrepareCall& call) {
  return dispatch_size(call.in[0].dtype, [&]<class T>() {
    return reference<T>(merged_axes(call), call.out[0].elements(), call.backend.threads());
  });
}

}  // namespace pl::cpu
