// CPU kernels of the accuracies.
#include "backend/cpu/parallel.h"
#include "op/accuracy.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

template <class T>
Dim first_largest(const T* row, Dim classes) {
  Dim best = 0;
  for (Dim c = 1; c < classes; ++c)
    if (row[c] > row[best]) best = c;
  return best;
}

// `right(in, row)` is the class that row should have.
template <class T, class Right>
std::unique_ptr<Kernel> accuracy(const PrepareCall& call, Right right) {
  const Dim classes = call.in[0].shape.back(), rows = call.in[0].elements() / classes;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const T* scores = static_cast<const T*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(threads, rows, rows * classes, [&](Dim begin, Dim end) {
      for (Dim r = begin; r < end; ++r)
        y[r] = first_largest(scores + r * classes, classes) == right(in[1], r) ? 1.0f : 0.0f;
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> sparse_categorical_accuracy_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return accuracy<T>(call, [](const void* labels, Dim row) -> Dim {
      return static_cast<const int32_t*>(labels)[row];
    });
  });
}

std::unique_ptr<Kernel> categorical_accuracy_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Dim classes = call.in[0].shape.back();
    return accuracy<T>(call, [classes](const void* targets, Dim row) {
      return first_largest(static_cast<const T*>(targets) + row * classes, classes);
    });
  });
}

}  // namespace pl::cpu
