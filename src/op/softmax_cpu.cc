// CPU kernels of softmax. Each row is read to the end before its first element is written, or
// element by element in step with the writing, so that an output may lie on an input.
#include <cmath>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/softmax.h"

namespace pl::cpu {
namespace {

struct Form {
  Dim rows, classes;
};

Form form_of(const PrepareCall& call) {
  const Dim classes = call.out[0].shape.back();
  return {classes > 0 ? call.out[0].elements() / classes : 0, classes};
}

// The largest score is taken off first: no exponential overflows, and one of them is 1.
template <class T>
void softmax_row(const T* x, T* y, Dim classes) {
  T largest = x[0];
  for (Dim c = 1; c < classes; ++c) largest = x[c] > largest ? x[c] : largest;
  double sum = 0;
  for (Dim c = 0; c < classes; ++c) {
    y[c] = std::exp(x[c] - largest);
    sum += static_cast<double>(y[c]);
  }
  const T factor = static_cast<T>(1 / sum);
#pragma omp simd
  for (Dim c = 0; c < classes; ++c) y[c] *= factor;
}

template <class T>
void gradient_row(const T* y, const T* dy, T* dx, Dim classes) {
  double dot = 0;
  for (Dim c = 0; c < classes; ++c) dot += static_cast<double>(y[c]) * static_cast<double>(dy[c]);
  const T mean = static_cast<T>(dot);
#pragma omp simd
  for (Dim c = 0; c < classes; ++c) dx[c] = y[c] * (dy[c] - mean);
}

}  // namespace

std::unique_ptr<Kernel> softmax_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const int threads = call.backend.threads();
    return make_kernel([f, threads](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(threads, f.rows, f.rows * f.classes * 10, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r)
          softmax_row(x + r * f.classes, y + r * f.classes, f.classes);
      });
    });
  });
}

std::unique_ptr<Kernel> softmax_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const int threads = call.backend.threads();
    return make_kernel([f, threads](void* const* in, void* const* out, void*) {
      const T* y = static_cast<const T*>(in[0]);
      const T* dy = static_cast<const T*>(in[1]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(threads, f.rows, f.rows * f.classes * 3, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r)
          gradient_row(y + r * f.classes, dy + r * f.classes, dx + r * f.classes, f.classes);
      });
    });
  });
}

}  // namespace pl::cpu
