// layer_norm and its gradients, float32 and bfloat16, compiled once for each SIMD target. Sums run
// in 16 lanes whatever the vector width, and join in float64 after a block, so that all targets
// give the same bits.
#include "op/layer_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/layer_norm_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

constexpr int kParts = static_cast<int>(kLanes / kWidth);  // vectors that make 16 lanes

// `sums` numbers at once, each the sum over j < count of what `terms(j, n, to)` gives for elements
// [j, j + n), n = kWidth or fewer: to[s] the terms of sum s, zeros behind n.
template <int sums, class Terms>
HWY_INLINE void sum_row(Dim count, double* result, const Terms& terms) {
  constexpr Dim kBlock = 64 * kLanes;
  const Floats d;
  std::fill(result, result + sums, 0.0);
  for (Dim begin = 0; begin < count; begin += kBlock) {
    const Dim end = std::min(count, begin + kBlock);
    FloatVector total[sums][kParts];
    for (int s = 0; s < sums; ++s)
      for (int p = 0; p < kParts; ++p) total[s][p] = hn::Zero(d);
    FloatVector term[sums];
    for (Dim j = begin; j < end; j += kLanes)
      for (int p = 0; p < kParts; ++p) {
        const Dim at = j + p * kWidth, left = end - at;
        if (left <= 0) break;
        terms(at, left < kWidth ? left : kWidth, term);
        for (int s = 0; s < sums; ++s) total[s][p] = hn::Add(total[s][p], term[s]);
      }
    for (int s = 0; s < sums; ++s)
      for (int p = 0; p < kParts; ++p) {
        float lanes[kWidth];
        hn::StoreU(total[s][p], d, lanes);
        for (float lane : lanes) result[s] += static_cast<double>(lane);
      }
  }
}

template <class T>
HWY_INLINE void normalise(const T* x, const float* gamma, const float* beta, T* y, float* mean,
                          float* rstd, Dim rows, Dim features, double epsilon) {
  const Floats d;
  for (Dim r = 0; r < rows; ++r, x += features, y += features) {
    double sum, squares;
    sum_row<1>(features, &sum,
               [&](Dim j, Dim n, FloatVector* to) HWY_ATTR { to[0] = load(x + j, n); });
    mean[r] = static_cast<float>(sum / static_cast<double>(features));
    const auto average = hn::Set(d, mean[r]);
    sum_row<1>(features, &squares, [&](Dim j, Dim n, FloatVector* to) HWY_ATTR {
      auto apart = hn::Sub(load(x + j, n), average);
      if (n < kWidth) apart = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), apart);
      to[0] = hn::Mul(apart, apart);
    });
    rstd[r] = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(features) + epsilon));
    const auto inverse = hn::Set(d, rstd[r]);
    along_row(features, [&](Dim j, Dim n) HWY_ATTR {
      const auto normal = hn::Mul(hn::Sub(load(x + j, n), average), inverse);
      store(hn::Add(hn::Mul(normal, load(gamma + j, n)), load(beta + j, n)), y + j, n);
    });
  }
}

template <class T>
HWY_INLINE void normalise_gradient(const T* x, const float* gamma, const float* mean,
                                   const float* rstd, const T* dy, T* dx, Dim rows, Dim features) {
  const Floats d;
  for (Dim r = 0; r < rows; ++r, x += features, dy += features, dx += features) {
    const auto average = hn::Set(d, mean[r]), inverse = hn::Set(d, rstd[r]);
    double sums[2];  // of g = dy * gamma, and of g times the normalised x
    sum_row<2>(features, sums, [&](Dim j, Dim n, FloatVector* to) HWY_ATTR {
      to[0] = hn::Mul(load(dy + j, n), load(gamma + j, n));
      to[1] = hn::Mul(to[0], hn::Mul(hn::Sub(load(x + j, n), average), inverse));
    });
    const auto flat = hn::Set(d, static_cast<float>(sums[0] / static_cast<double>(features)));
    const auto slope = hn::Set(d, static_cast<float>(sums[1] / static_cast<double>(features)));
    along_row(features, [&](Dim j, Dim n) HWY_ATTR {
      const auto normal = hn::Mul(hn::Sub(load(x + j, n), average), inverse);
      const auto g = hn::Mul(load(dy + j, n), load(gamma + j, n));
      store(hn::Mul(inverse, hn::Sub(hn::Sub(g, flat), hn::Mul(normal, slope))), dx + j, n);
    });
  }
}

// dgamma and dbeta of columns [first, first + width), width at most 2 * kLanes: in float32 over 64
// rows, in float64 beyond.
template <class T>
HWY_INLINE void sum_columns(const T* x, const float* mean, const float* rstd, const T* dy, Dim rows,
                            Dim features, Dim first, Dim width, float* dgamma, float* dbeta) {
  constexpr Dim kShort = 64;
  const Floats d;
  double gammas[2 * kLanes] = {}, betas[2 * kLanes] = {};
  for (Dim begin = 0; begin < rows; begin += kShort) {
    const Dim end = std::min(rows, begin + kShort);
    for (Dim j = 0; j < width; j += kWidth) {
      const Dim n = std::min(kWidth, width - j);
      auto gamma = hn::Zero(d), beta = hn::Zero(d);
      for (Dim r = begin; r < end; ++r) {
        const Dim at = r * features + first + j;
        const auto g = load(dy + at, n);
        const auto normal =
            hn::Mul(hn::Sub(load(x + at, n), hn::Set(d, mean[r])), hn::Set(d, rstd[r]));
        gamma = hn::Add(gamma, hn::Mul(g, normal));
        beta = hn::Add(beta, g);
      }
      float lanes[kWidth];
      hn::StoreU(gamma, d, lanes);
      for (Dim i = 0; i < n; ++i) gammas[j + i] += static_cast<double>(lanes[i]);
      hn::StoreU(beta, d, lanes);
      for (Dim i = 0; i < n; ++i) betas[j + i] += static_cast<double>(lanes[i]);
    }
  }
  for (Dim j = 0; j < width; ++j) {
    dgamma[first + j] = static_cast<float>(gammas[j]);
    dbeta[first + j] = static_cast<float>(betas[j]);
  }
}

// One of each for float32 and for bfloat16.
void normalise_f32(const float* x, const float* gamma, const float* beta, float* y, float* mean,
                   float* rstd, Dim rows, Dim features, double epsilon) {
  normalise(x, gamma, beta, y, mean, rstd, rows, features, epsilon);
}
void normalise_bf16(const Bfloat16* x, const float* gamma, const float* beta, Bfloat16* y,
                    float* mean, float* rstd, Dim rows, Dim features, double epsilon) {
  normalise(x, gamma, beta, y, mean, rstd, rows, features, epsilon);
}
void normalise_gradient_f32(const float* x, const float* gamma, const float* mean,
                            const float* rstd, const float* dy, float* dx, Dim rows, Dim features) {
  normalise_gradient(x, gamma, mean, rstd, dy, dx, rows, features);
}
void normalise_gradient_bf16(const Bfloat16* x, const float* gamma, const float* mean,
                             const float* rstd, const Bfloat16* dy, Bfloat16* dx, Dim rows,
                             Dim features) {
  normalise_gradient(x, gamma, mean, rstd, dy, dx, rows, features);
}
void sum_columns_f32(const float* x, const float* mean, const float* rstd, const float* dy,
                     Dim rows, Dim features, Dim first, Dim width, float* dgamma, float* dbeta) {
  sum_columns(x, mean, rstd, dy, rows, features, first, width, dgamma, dbeta);
}
void sum_columns_bf16(const Bfloat16* x, const float* mean, const float* rstd, const Bfloat16* dy,
                      Dim rows, Dim features, Dim first, Dim width, float* dgamma, float* dbeta) {
  sum_columns(x, mean, rstd, dy, rows, features, first, width, dgamma, dbeta);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(normalise_f32);
HWY_EXPORT(normalise_bf16);
HWY_EXPORT(normalise_gradient_f32);
HWY_EXPORT(normalise_gradient_bf16);
HWY_EXPORT(sum_columns_f32);
HWY_EXPORT(sum_columns_bf16);

namespace {

template <class T>
constexpr bool kNarrow = std::is_same_v<T, Bfloat16>;

// The kernel for T, with its parameters in float32; null where they are not.
template <class F>
std::unique_ptr<Kernel> dispatch_rows(const PrepareCall& call, F body) {
  for (size_t i = 1; i < call.in.size(); ++i)
    if (call.in[i].shape != call.in[0].shape && call.in[i].dtype != Dtype::float32) return nullptr;
  return dispatch_simd(call.in[0].dtype, body);
}

}  // namespace

std::unique_ptr<Kernel> layer_norm_simd(const PrepareCall& call) {
  const Dim features = call.in[0].shape.back(), rows = call.in[0].elements() / features;
  const int threads = call.backend.threads();
  const double epsilon = call.attrs.real("epsilon");
  return dispatch_rows(call, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const float* gamma = static_cast<const float*>(in[1]);
      const float* beta = static_cast<const float*>(in[2]);
      T* y = static_cast<T*>(out[0]);
      float* mean = static_cast<float*>(out[1]);
      float* rstd = static_cast<float*>(out[2]);
      parallel_ranges(threads, rows, rows * features * 2, [&](Dim begin, Dim end) {
        const Dim at = begin * features, count = end - begin;
        if constexpr (kNarrow<T>) HWY_DYNAMIC_DISPATCH(normalise_bf16)
        (x + at, gamma, beta, y + at, mean + begin, rstd + begin, count, features, epsilon);
        else HWY_DYNAMIC_DISPATCH(normalise_f32)(x + at, gamma, beta, y + at, mean + begin,
                                                 rstd + begin, count, features, epsilon);
      });
    });
  });
}

std::unique_ptr<Kernel> layer_norm_gradient_simd(const PrepareCall& call) {
  const Dim features = call.in[0].shape.back(), rows = call.in[0].elements() / features;
  const int threads = call.backend.threads();
  return dispatch_rows(call, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const float* gamma = static_cast<const float*>(in[1]);
      const float* mean = static_cast<const float*>(in[2]);
      const float* rstd = static_cast<const float*>(in[3]);
      const T* dy = static_cast<const T*>(in[4]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(threads, rows, rows * features * 2, [&](Dim begin, Dim end) {
        const Dim at = begin * features, count = end - begin;
        if constexpr (kNarrow<T>) HWY_DYNAMIC_DISPATCH(normalise_gradient_bf16)
        (x + at, gamma, mean + begin, rstd + begin, dy + at, dx + at, count, features);
        else HWY_DYNAMIC_DISPATCH(normalise_gradient_f32)(x + at, gamma, mean + begin, rstd + begin,
                                                          dy + at, dx + at, count, features);
      });
    });
  });
}

// Columns are shared out to threads, so that each sum has one order.
std::unique_ptr<Kernel> layer_norm_parameter_gradient_simd(const PrepareCall& call) {
  const Dim features = call.in[0].shape.back(), rows = call.in[0].elements() / features;
  const int threads = call.backend.threads();
  return dispatch_rows(call, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const float* mean = static_cast<const float*>(in[1]);
      const float* rstd = static_cast<const float*>(in[2]);
      const T* dy = static_cast<const T*>(in[3]);
      float* dgamma = static_cast<float*>(out[0]);
      float* dbeta = static_cast<float*>(out[1]);
      constexpr Dim kColumns = 32;
      auto sum = [&](Dim first, Dim width) {
        if constexpr (kNarrow<T>) HWY_DYNAMIC_DISPATCH(sum_columns_bf16)
        (x, mean, rstd, dy, rows, features, first, width, dgamma, dbeta);
        else HWY_DYNAMIC_DISPATCH(sum_columns_f32)(x, mean, rstd, dy, rows, features, first, width,
                                                   dgamma, dbeta);
      };
      parallel_ranges(
          threads, features, rows * features * 2,
          [&](Dim begin, Dim end) {
            for (Dim first = begin; first < end; first += kColumns)
              sum(first, std::min(kColumns, end - first));
          },
          kColumns);
    });
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
