// layer_norm and its gradients, float32, compiled once for each SIMD target. Sums run in 16 lanes
// whatever the vector width, and join in float64 after a block, so that all targets give the same
// bits.
#include "op/layer_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/layer_norm_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cmath>

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

HWY_INLINE FloatVector load(const float* x, Dim count) {
  return count == kWidth ? hn::LoadU(Floats(), x) : load_part(x, count);
}
HWY_INLINE void store(FloatVector v, float* to, Dim count) {
  if (count == kWidth)
    hn::StoreU(v, Floats(), to);
  else
    store_part(v, to, count);
}

// Calls body(j, n) for the elements [j, j + n) of a row, n = kWidth but at its end.
template <class Body>
HWY_INLINE void along_row(Dim count, const Body& body) {
  Dim j = 0;
  for (; j + kWidth <= count; j += kWidth) body(j, kWidth);
  if (j < count) body(j, count - j);
}

void normalise_rows(const float* x, const float* gamma, const float* beta, float* y, float* mean,
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

void normalise_rows_gradient(const float* x, const float* gamma, const float* mean,
                             const float* rstd, const float* dy, float* dx, Dim rows,
                             Dim features) {
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
void sum_columns(const float* x, const float* mean, const float* rstd, const float* dy, Dim rows,
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

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(normalise_rows);
HWY_EXPORT(normalise_rows_gradient);
HWY_EXPORT(sum_columns);

std::unique_ptr<Kernel> layer_norm_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const Dim features = call.in[0].shape.back(), rows = call.in[0].elements() / features;
  const int threads = call.backend.threads();
  const double epsilon = call.attrs.real("epsilon");
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    const float* gamma = static_cast<const float*>(in[1]);
    const float* beta = static_cast<const float*>(in[2]);
    float* y = static_cast<float*>(out[0]);
    float* mean = static_cast<float*>(out[1]);
    float* rstd = static_cast<float*>(out[2]);
    parallel_ranges(threads, rows, rows * features * 2, [&](Dim begin, Dim end) {
      const Dim at = begin * features;
      HWY_DYNAMIC_DISPATCH(normalise_rows)
      (x + at, gamma, beta, y + at, mean + begin, rstd + begin, end - begin, features, epsilon);
    });
  });
}

std::unique_ptr<Kernel> layer_norm_gradient_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const Dim features = call.in[0].shape.back(), rows = call.in[0].elements() / features;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    const float* gamma = static_cast<const float*>(in[1]);
    const float* mean = static_cast<const float*>(in[2]);
    const float* rstd = static_cast<const float*>(in[3]);
    const float* dy = static_cast<const float*>(in[4]);
    float* dx = static_cast<float*>(out[0]);
    parallel_ranges(threads, rows, rows * features * 2, [&](Dim begin, Dim end) {
      const Dim at = begin * features;
      HWY_DYNAMIC_DISPATCH(normalise_rows_gradient)
      (x + at, gamma, mean + begin, rstd + begin, dy + at, dx + at, end - begin, features);
    });
  });
}

// Columns are shared out to threads, so that each sum has one order.
std::unique_ptr<Kernel> layer_norm_parameter_gradient_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const Dim features = call.in[0].shape.back(), rows = call.in[0].elements() / features;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    const float* mean = static_cast<const float*>(in[1]);
    const float* rstd = static_cast<const float*>(in[2]);
    const float* dy = static_cast<const float*>(in[3]);
    float* dgamma = static_cast<float*>(out[0]);
    float* dbeta = static_cast<float*>(out[1]);
    constexpr Dim kColumns = 32;
    parallel_ranges(
        threads, features, rows * features * 2,
        [&](Dim begin, Dim end) {
          for (Dim first = begin; first < end; first += kColumns) HWY_DYNAMIC_DISPATCH(sum_columns)
          (x, mean, rstd, dy, rows, features, first, std::min(kColumns, end - first), dgamma,
           dbeta);
        },
        kColumns);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
