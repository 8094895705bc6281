// Reference kernels of gelu. An element is read before the one in its place is written.
#include <cmath>
#include <limits>
#include <numbers>

#include "backend/cpu/parallel.h"
#include "op/gelu.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

constexpr double kCubic = 0.044715;
constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)

// The probability below x; erfc keeps its digits where it is small.
template <class T>
T below(T x) {
  return T(0.5) * std::erfc(-x * static_cast<T>(1 / std::numbers::sqrt2));
}

// sigmoid(2 u), which is (1 + tanh(u)) / 2 without its cancellation.
template <class T>
T below_approximate(T x) {
  const T u = static_cast<T>(kTanhScale) * (x + static_cast<T>(kCubic) * x * x * x);
  return T(1) / (T(1) + std::exp(T(-2) * u));
}

template <class T>
T value(T x, bool approximate) {
  // Without this, -infinity times its probability of 0 would be NaN.
  if (x == -std::numeric_limits<T>::infinity()) return T(0);
  return x * (approximate ? below_approximate(x) : below(x));
}

template <class T>
T slope(T x, bool approximate) {
  if (std::isinf(x)) return x > T(0) ? T(1) : T(0);
  if (!approximate) {
    const T height = static_cast<T>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return below(x) + x * height * std::exp(T(-0.5) * x * x);
  }
  const T s = below_approximate(x);
  const T du = static_cast<T>(kTanhScale) * (T(1) + static_cast<T>(3 * kCubic) * x * x);
  const T flat = s * (T(1) - s);  // 0 where du may overflow
  return flat == T(0) ? s : s + x * flat * T(2) * du;
}

}  // namespace

template <class T>
void gelu_row(const T* x, T* y, Dim count, bool approximate) {
  for (Dim i = 0; i < count; ++i) y[i] = value(x[i], approximate);
}
template <class T>
void gelu_gradient_row(const T* x, const T* dy, T* dx, Dim count, bool approximate) {
  for (Dim i = 0; i < count; ++i) dx[i] = dy[i] * slope(x[i], approximate);
}
template void gelu_row(const float*, float*, Dim, bool);
template void gelu_row(const double*, double*, Dim, bool);
template void gelu_gradient_row(const float*, const float*, float*, Dim, bool);
template void gelu_gradient_row(const double*, const double*, double*, Dim, bool);

std::unique_ptr<Kernel> gelu_reference(const PrepareCall& call) {
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  const bool approximate = call.attrs.integer("approximate", 0);
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(threads, count, count * 8, [&](int64_t begin, int64_t end) {
        gelu_row(x + begin, y + begin, end - begin, approximate);
      });
    });
  });
}

std::unique_ptr<Kernel> gelu_gradient_reference(const PrepareCall& call) {
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  const bool approximate = call.attrs.integer("approximate", 0);
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const T* dy = static_cast<const T*>(in[1]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(threads, count, count * 8, [&](int64_t begin, int64_t end) {
        gelu_gradient_row(x + begin, dy + begin, dx + begin, end - begin, approximate);
      });
    });
  });
}

}  // namespace pl::cpu
