// Reference kernels of softmax cross-entropy: plain loops over rows, which threads share out. Sums
// are in double, in class order. The fast ones are in softmax_cross_entropy_simd.cc.
#include <cmath>
#include <limits>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/softmax_cross_entropy.h"

namespace pl::cpu {
namespace {

struct Size {
  Dim rows, classes;
  int threads;
};

Size size_of_call(const PrepareCall& call) {
  const Dim classes = call.in[0].shape.back();
  return {call.in[0].elements() / classes, classes, call.backend.threads()};
}

constexpr int64_t kExpCost = 8;  // of an exponential, in cheap elements

// Writes softmax(x) to `probs`, which may be `x`; returns max(x) + log(sum(exp(x - max(x)))).
template <class T>
double softmax_row(const T* x, T* probs, Dim classes) {
  T largest = x[0];
  for (Dim c = 1; c < classes; ++c) largest = x[c] > largest ? x[c] : largest;
  double sum = 0;
  for (Dim c = 0; c < classes; ++c) {
    probs[c] = std::exp(x[c] - largest);
    sum += static_cast<double>(probs[c]);
  }
  const T scale = static_cast<T>(1 / sum);
  for (Dim c = 0; c < classes; ++c) probs[c] *= scale;
  return static_cast<double>(largest) + std::log(sum);
}

template <class T>
std::unique_ptr<Kernel> sparse(Size size) {
  return make_kernel([size](void* const* in, void* const* out, void*) {
    const T* logits = static_cast<const T*>(in[0]);
    const int32_t* labels = static_cast<const int32_t*>(in[1]);
    T* loss = static_cast<T*>(out[0]);
    T* probs = static_cast<T*>(out[1]);
    const Dim n = size.classes;
    parallel_ranges(size.threads, size.rows, size.rows * n * kExpCost, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        const Dim label = labels[i];
        const bool known = label >= 0 && label < n;
        // Read before probs overwrite it.
        const double of_label = known ? static_cast<double>(logits[i * n + label]) : 0;
        const double log_sum = softmax_row(logits + i * n, probs + i * n, n);
        loss[i] = known ? static_cast<T>(log_sum - of_label) : std::numeric_limits<T>::quiet_NaN();
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> sparse_gradient(Size size) {
  return make_kernel([size](void* const* in, void* const* out, void*) {
    const T* probs = static_cast<const T*>(in[0]);
    const int32_t* labels = static_cast<const int32_t*>(in[1]);
    const T* dloss = static_cast<const T*>(in[2]);
    T* dlogits = static_cast<T*>(out[0]);
    const Dim n = size.classes;
    parallel_ranges(size.threads, size.rows, size.rows * n, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        const T* p = probs + i * n;
        T* d = dlogits + i * n;
        const Dim label = labels[i];
        const bool known = label >= 0 && label < n;
        const T of_label = known ? (p[label] - T(1)) * dloss[i] : T(0);
        const T scale = known ? dloss[i] : std::numeric_limits<T>::quiet_NaN();
        for (Dim c = 0; c < n; ++c) d[c] = p[c] * scale;
        if (known) d[label] = of_label;
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> dense(Size size) {
  return make_kernel([size](void* const* in, void* const* out, void*) {
    const T* logits = static_cast<const T*>(in[0]);
    const T* targets = static_cast<const T*>(in[1]);
    T* loss = static_cast<T*>(out[0]);
    T* probs = static_cast<T*>(out[1]);
    const Dim n = size.classes;
    parallel_ranges(size.threads, size.rows, size.rows * n * kExpCost, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        const T *x = logits + i * n, *t = targets + i * n;
        // loss = sum(t) * log_sum - sum(t * x), in terms of x - x[0] to keep the sums small.
        // A target of 0 counts for nothing, even where the logit is infinite.
        const double base = static_cast<double>(x[0]);
        double total = 0, product = 0;
        for (Dim c = 0; c < n; ++c) {
          if (t[c] == T(0)) continue;
          total += static_cast<double>(t[c]);
          product += static_cast<double>(t[c]) * (static_cast<double>(x[c]) - base);
        }
        const double log_sum = softmax_row(x, probs + i * n, n);
        loss[i] = static_cast<T>(total * (log_sum - base) - product);
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> dense_gradient(Size size) {
  return make_kernel([size](void* const* in, void* const* out, void*) {
    const T* probs = static_cast<const T*>(in[0]);
    const T* targets = static_cast<const T*>(in[1]);
    const T* dloss = static_cast<const T*>(in[2]);
    T* dlogits = static_cast<T*>(out[0]);
    const Dim n = size.classes;
    parallel_ranges(size.threads, size.rows, size.rows * n, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        const T *p = probs + i * n, *t = targets + i * n;
        double total = 0;  // 1 for a distribution; anything else is differentiated correctly too
        for (Dim c = 0; c < n; ++c) total += static_cast<double>(t[c]);
        for (Dim c = 0; c < n; ++c)
          dlogits[i * n + c] = (p[c] * static_cast<T>(total) - t[c]) * dloss[i];
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> sparse_softmax_cross_entropy_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() { return sparse<T>(size_of_call(call)); });
}

std::unique_ptr<Kernel> sparse_softmax_cross_entropy_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return sparse_gradient<T>(size_of_call(call)); });
}

std::unique_ptr<Kernel> softmax_cross_entropy_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() { return dense<T>(size_of_call(call)); });
}

std::unique_ptr<Kernel> softmax_cross_entropy_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return dense_gradient<T>(size_of_call(call)); });
}

}  // namespace pl::cpu
