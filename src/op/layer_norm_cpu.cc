// Reference kernels of layer_norm; sums run in float64. Each row is summed to the end before its
// first element is written, so that an output may lie on x or dy.
#include <cmath>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/layer_norm.h"

namespace pl::cpu {
namespace {

struct Form {
  Dim rows, features;
};

Form form_of(const PrepareCall& call) {
  const Dim features = call.in[0].shape.back();
  return {call.in[0].elements() / features, features};
}

template <class T>
void normalise_row(const T* x, const T* gamma, const T* beta, T* y, T* mean, T* rstd, Dim features,
                   double epsilon) {
  double sum = 0, squares = 0;
  for (Dim j = 0; j < features; ++j) sum += static_cast<double>(x[j]);
  const double average = sum / static_cast<double>(features);
  for (Dim j = 0; j < features; ++j) {
    const double apart = static_cast<double>(x[j]) - average;
    squares += apart * apart;
  }
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(features) + epsilon);
  for (Dim j = 0; j < features; ++j)
    y[j] = static_cast<T>((static_cast<double>(x[j]) - average) * inverse) * gamma[j] + beta[j];
  *mean = static_cast<T>(average);
  *rstd = static_cast<T>(inverse);
}

template <class T>
void gradient_row(const T* x, const T* gamma, T mean, T rstd, const T* dy, T* dx, Dim features) {
  double sum = 0, dot = 0;
  for (Dim j = 0; j < features; ++j) {
    const T g = dy[j] * gamma[j];
    sum += static_cast<double>(g);
    dot += static_cast<double>(g * ((x[j] - mean) * rstd));
  }
  const T average = static_cast<T>(sum / static_cast<double>(features));
  const T slope = static_cast<T>(dot / static_cast<double>(features));
  for (Dim j = 0; j < features; ++j)
    dx[j] = rstd * (dy[j] * gamma[j] - average - (x[j] - mean) * rstd * slope);
}

}  // namespace

std::unique_ptr<Kernel> layer_norm_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const int threads = call.backend.threads();
    const double epsilon = call.attrs.real("epsilon");
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const T* gamma = static_cast<const T*>(in[1]);
      const T* beta = static_cast<const T*>(in[2]);
      T* y = static_cast<T*>(out[0]);
      T* mean = static_cast<T*>(out[1]);
      T* rstd = static_cast<T*>(out[2]);
      parallel_ranges(threads, f.rows, f.rows * f.features * 4, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r)
          normalise_row(x + r * f.features, gamma, beta, y + r * f.features, mean + r, rstd + r,
                        f.features, epsilon);
      });
    });
  });
}

std::unique_ptr<Kernel> layer_norm_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const int threads = call.backend.threads();
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const T* gamma = static_cast<const T*>(in[1]);
      const T* mean = static_cast<const T*>(in[2]);
      const T* rstd = static_cast<const T*>(in[3]);
      const T* dy = static_cast<const T*>(in[4]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(threads, f.rows, f.rows * f.features * 4, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r)
          gradient_row(x + r * f.features, gamma, mean[r], rstd[r], dy + r * f.features,
                       dx + r * f.features, f.features);
      });
    });
  });
}

// Columns are shared out to threads; each is summed in the order of its rows.
std::unique_ptr<Kernel> layer_norm_parameter_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const int threads = call.backend.threads();
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const T* mean = static_cast<const T*>(in[1]);
      const T* rstd = static_cast<const T*>(in[2]);
      const T* dy = static_cast<const T*>(in[3]);
      T* dgamma = static_cast<T*>(out[0]);
      T* dbeta = static_cast<T*>(out[1]);
      parallel_ranges(threads, f.features, f.rows * f.features * 4, [&](Dim begin, Dim end) {
        for (Dim j = begin; j < end; ++j) {
          double gamma = 0, beta = 0;
          for (Dim r = 0; r < f.rows; ++r) {
            const T g = dy[r * f.features + j];
            gamma += static_cast<double>(g * ((x[r * f.features + j] - mean[r]) * rstd[r]));
            beta += static_cast<double>(g);
          }
          dgamma[j] = static_cast<T>(gamma);
          dbeta[j] = static_cast<T>(beta);
        }
      });
    });
  });
}

}  // namespace pl::cpu
