// Gradients of batch_norm, float32 and bfloat16, compiled once for each SIMD target: one pass over
// x and dy for the sums, a second for dx. Sums run in float32 over a chunk, chunks are added in a
// fixed order.
#include "op/batch_norm_gradient.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/batch_norm_gradient_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cmath>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/channels.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"
// Behind it: uses its types.
#include "op/channels-inl.h"

// g where a relu, clipped at `most`, let v through.
HWY_INLINE FloatVector masked_by(FloatVector v, FloatVector most, FloatVector g) {
  const Floats d;
  return hn::IfThenElseZero(hn::AndNot(hn::Ge(v, most), hn::Gt(v, hn::Zero(d))), g);
}

template <SignOf sign, class T>
HWY_INLINE void sum_as(const GradientRows<T>& p, float* sum, float* along) {
  const Floats d;
  const auto zero = hn::Zero(d), most = hn::Set(d, p.most);
  along_columns(p.columns, [&]<int vectors>(Dim c, Dim n) HWY_ATTR {
    FloatVector mean[vectors], total[vectors], product[vectors];
    for (int v = 0; v < vectors; ++v) {
      mean[v] = load(p.mean + c + v * kWidth, n);
      total[v] = product[v] = zero;
    }
    for (Dim r = 0; r < p.rows; ++r)
      for (int v = 0; v < vectors; ++v) {
        const Dim column = c + v * kWidth, at = r * p.period + column;
        auto g = load(p.dy + at, n);
        const auto apart = hn::Sub(load(p.x + at, n), mean[v]);
        if constexpr (sign == SignOf::x) {
          const auto value =
              hn::Add(hn::Mul(apart, load(p.factor + column, n)), load(p.beta + column, n));
          g = masked_by(value, most, g);
        }
        if constexpr (sign == SignOf::y) {
          g = masked_by(load(p.y + at, n), most, g);
          store(g, p.masked + at, n);
        }
        total[v] = hn::Add(total[v], g);
        product[v] = hn::Add(product[v], hn::Mul(g, apart));
      }
    for (int v = 0; v < vectors; ++v) {
      const Dim at = c + v * kWidth;
      store(hn::Add(load(sum + at, n), total[v]), sum + at, n);
      store(hn::Add(load(along + at, n), product[v]), along + at, n);
    }
  });
}

template <class T>
HWY_INLINE void sum_any(const GradientRows<T>& p, SignOf sign, float* sum, float* along) {
  if (sign == SignOf::none) sum_as<SignOf::none>(p, sum, along);
  if (sign == SignOf::x) sum_as<SignOf::x>(p, sum, along);
  if (sign == SignOf::y) sum_as<SignOf::y>(p, sum, along);
}

// g is p.dy, already masked where the sign is y's.
template <bool by_x, class T>
HWY_INLINE void finish_as(const GradientRows<T>& p) {
  const Floats d;
  const auto most = hn::Set(d, p.most);
  along_rows(p.rows, p.columns, [&]<int rows>(Dim r, Dim c, Dim n) HWY_ATTR {
    const auto mean = load(p.mean + c, n), factor = load(p.factor + c, n);
    const auto flat = load(p.flat + c, n), slope = load(p.slope + c, n);
    auto beta = hn::Zero(d);
    if constexpr (by_x) beta = load(p.beta + c, n);
    for (int k = 0; k < rows; ++k) {
      const Dim at = (r + k) * p.period + c;
      auto g = load(p.dy + at, n);
      const auto apart = hn::Sub(load(p.x + at, n), mean);
      if constexpr (by_x) g = masked_by(hn::Add(hn::Mul(apart, factor), beta), most, g);
      store(hn::Mul(factor, hn::Sub(hn::Sub(g, flat), hn::Mul(apart, slope))), p.dx + at, n);
    }
  });
}

void sum_f32(const GradientRows<float>& p, SignOf sign, float* sum, float* along) {
  sum_any(p, sign, sum, along);
}
void sum_bf16(const GradientRows<Bfloat16>& p, SignOf sign, float* sum, float* along) {
  sum_any(p, sign, sum, along);
}
void finish_f32(const GradientRows<float>& p, bool by_x) {
  by_x ? finish_as<true>(p) : finish_as<false>(p);
}
void finish_bf16(const GradientRows<Bfloat16>& p, bool by_x) {
  by_x ? finish_as<true>(p) : finish_as<false>(p);
}

// Adds the sums of all tasks, [task][columns], into the first one's.
void add_tasks(Dim tasks, Dim columns, float* sums) {
  for (Dim task = 1; task < tasks; ++task)
    along_columns(columns, [&]<int vectors>(Dim c, Dim n) HWY_ATTR {
      for (int v = 0; v < vectors; ++v) {
        float* to = sums + c + v * kWidth;
        store(hn::Add(load(to, n), load(to + task * columns, n)), to, n);
      }
    });
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_bf16);
HWY_EXPORT(finish_f32);
HWY_EXPORT(finish_bf16);
HWY_EXPORT(add_tasks);

namespace {

void sum_rows(const GradientRows<float>& p, SignOf sign, float* sum, float* along) {
  HWY_DYNAMIC_DISPATCH(sum_f32)(p, sign, sum, along);
}
void sum_rows(const GradientRows<Bfloat16>& p, SignOf sign, float* sum, float* along) {
  HWY_DYNAMIC_DISPATCH(sum_bf16)(p, sign, sum, along);
}
void finish_rows(const GradientRows<float>& p, bool by_x) {
  HWY_DYNAMIC_DISPATCH(finish_f32)(p, by_x);
}
void finish_rows(const GradientRows<Bfloat16>& p, bool by_x) {
  HWY_DYNAMIC_DISPATCH(finish_bf16)(p, by_x);
}

constexpr Dim kParameterRows = 5;  // mean, factor, beta, flat, slope

template <class T>
struct Gradient {
  ChannelForm f;
  SignOf sign;
  double epsilon;
  float most;

  // Rows of parameters, then [task][sum, along][period].
  Bytes workspace_bytes() const { return (kParameterRows + 2 * f.tasks) * f.row_bytes(); }

  void run(void* const* in, void* const* out, float* workspace) const {
    auto input = [&](int i) { return static_cast<const float*>(in[i]); };
    auto row = [&](Dim i) { return workspace + i * f.period; };
    const float *variance = input(2), *gamma = input(3);
    repeat(f, input(1), row(0));
    find_factors(f, variance, gamma, epsilon, row(1));
    if (sign == SignOf::x) repeat(f, input(5), row(2));
    auto image = [&](int i) { return static_cast<const T*>(in[i]); };
    GradientRows<T> all{.mean = row(0),
                        .factor = row(1),
                        .beta = row(2),
                        .flat = row(3),
                        .slope = row(4),
                        .x = image(0),
                        .dy = image(4),
                        .y = sign == SignOf::y ? image(5) : nullptr,
                        .masked = sign == SignOf::y ? static_cast<T*>(out[3]) : nullptr,
                        .dx = static_cast<T*>(out[0]),
                        .period = f.period,
                        .most = most};
    float* sums = row(kParameterRows);
    sum(all, sums);
    finish_sums(variance, sums, static_cast<float*>(out[1]), static_cast<float*>(out[2]), row(3),
                row(4));
    if (sign == SignOf::y) all.dy = all.masked;
    auto finish = [&](Dim first, Dim rows, Dim columns) {
      finish_rows(part(all, first, rows, columns), sign == SignOf::x);
    };
    parallel_ranges(f.threads, f.rows, f.work(),
                    [&](Dim begin, Dim end) { finish(begin, end - begin, f.period); });
    if (f.tail > 0) finish(f.rows, 1, f.tail);
  }

 private:
  GradientRows<T> part(GradientRows<T> all, Dim first, Dim rows, Dim columns) const {
    const Dim at = first * f.period;
    all.x += at;
    all.dy += at;
    all.dx += at;
    if (all.y) all.y += at;
    if (all.masked) all.masked += at;
    all.rows = rows;
    all.columns = columns;
    return all;
  }

  // The last task also sums what is behind the last whole row.
  void sum(const GradientRows<T>& all, float* sums) const {
    parallel_ranges(f.threads, f.tasks, f.work(), [&](Dim begin, Dim end) {
      for (Dim task = begin; task < end; ++task) {
        float* of_task = sums + task * 2 * f.period;
        std::fill(of_task, of_task + 2 * f.period, 0.0f);
        auto add = [&](Dim first, Dim rows, Dim columns) {
          sum_rows(part(all, first, rows, columns), sign, of_task, of_task + f.period);
        };
        for (Dim chunk = f.first_chunk(task); chunk < f.first_chunk(task + 1); ++chunk) {
          const Dim first = chunk * f.chunk_rows;
          add(first, std::min(f.chunk_rows, f.rows - first), f.period);
        }
        if (task == f.tasks - 1 && f.tail > 0) add(f.rows, 1, f.tail);
      }
    });
    HWY_DYNAMIC_DISPATCH(add_tasks)(f.tasks, 2 * f.period, sums);
  }

  // Joins columns that are one channel; the factors of pass 2 follow.
  void finish_sums(const float* variance, const float* sums, float* dgamma, float* dbeta,
                   float* flat, float* slope) const {
    const double share = 1 / static_cast<double>(f.pixels);
    const float more = static_cast<float>(epsilon);
    for (Dim c = 0; c < f.channels; ++c) {
      double total = 0, product = 0;
      for (Dim k = c; k < f.period; k += f.channels) {
        total += static_cast<double>(sums[k]);
        product += static_cast<double>(sums[f.period + k]);
      }
      const double inverse = static_cast<double>(1.0f / std::sqrt(variance[c] + more));
      dbeta[c] = static_cast<float>(total);
      dgamma[c] = static_cast<float>(product * inverse);
      flat[c] = static_cast<float>(total * share);
      slope[c] = static_cast<float>(product * inverse * inverse * share);
    }
    for (float* row : {flat, slope})
      for (Dim k = f.channels; k < f.period; ++k) row[k] = row[k - f.channels];
  }
};

std::unique_ptr<Kernel> prepare_gradient(const PrepareCall& call, SignOf sign) {
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    const Gradient<T> gradient{channel_form(call), sign, call.attrs.real("epsilon"),
                               static_cast<float>(clip_of(call.attrs))};
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          gradient.run(in, out, static_cast<float*>(workspace));
        },
        gradient.workspace_bytes());
  });
}

}  // namespace

std::unique_ptr<Kernel> batch_norm_gradient_simd(const PrepareCall& call) {
  return prepare_gradient(call, SignOf::none);
}
std::unique_ptr<Kernel> batch_norm_relu_gradient_simd(const PrepareCall& call) {
  return prepare_gradient(call, SignOf::x);
}
std::unique_ptr<Kernel> batch_norm_add_relu_gradient_simd(const PrepareCall& call) {
  return prepare_gradient(call, SignOf::y);
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
