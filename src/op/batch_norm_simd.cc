// batch_norm, float32 and bfloat16, compiled once for each SIMD target. One pass over memory finds
// the moments: of each chunk first the mean, then, while it is in cache, the squares around it;
// chunks are joined by Chan's formula in a fixed order. A second pass normalises.
#include "op/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/batch_norm_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

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

// Joins the moments of `more` elements to those of `count`.
struct Join {
  Join(Dim count, Dim more)
      : first(count == 0),
        share(static_cast<float>(static_cast<double>(more) / static_cast<double>(count + more))),
        cross(static_cast<float>(static_cast<double>(count) * static_cast<double>(more) /
                                 static_cast<double>(count + more))) {}
  bool first;
  float share, cross;
};

HWY_INLINE void join(const Join& weights, FloatVector mean, FloatVector squares, float* all_mean,
                     float* all_squares, Dim n) {
  const Floats d;
  if (!weights.first) {
    const auto before = load(all_mean, n), apart = hn::Sub(mean, before);
    mean = hn::Add(before, hn::Mul(apart, hn::Set(d, weights.share)));
    squares = hn::Add(hn::Add(load(all_squares, n), squares),
                      hn::Mul(hn::Mul(apart, apart), hn::Set(d, weights.cross)));
  }
  store(mean, all_mean, n);
  store(squares, all_squares, n);
}

// Mean and sum of squares around it of columns [0, period) of x (rows, period), joined to those of
// the task. The mean is off by its rounding; the sum of what is left over corrects both.
template <class T>
HWY_INLINE void chunk_moments(const T* x, Dim rows, Dim period, const Join& weights,
                              float* all_mean, float* all_squares) {
  const Floats d;
  const auto share = hn::Set(d, 1.0f / static_cast<float>(rows));
  along_columns(period, [&]<int vectors>(Dim c, Dim n) HWY_ATTR {
    FloatVector mean[vectors], rest[vectors], squares[vectors];
    for (int v = 0; v < vectors; ++v) mean[v] = rest[v] = squares[v] = hn::Zero(d);
    for (Dim r = 0; r < rows; ++r)
      for (int v = 0; v < vectors; ++v)
        mean[v] = hn::Add(mean[v], load(x + r * period + c + v * kWidth, n));
    for (int v = 0; v < vectors; ++v) mean[v] = hn::Mul(mean[v], share);
    for (Dim r = 0; r < rows; ++r)
      for (int v = 0; v < vectors; ++v) {
        const auto apart = hn::Sub(load(x + r * period + c + v * kWidth, n), mean[v]);
        rest[v] = hn::Add(rest[v], apart);
        squares[v] = hn::Add(squares[v], hn::Mul(apart, apart));
      }
    for (int v = 0; v < vectors; ++v) {
      const auto off = hn::Mul(rest[v], share);
      const auto exact = hn::Sub(squares[v], hn::Mul(rest[v], off));
      // NaN stays.
      const auto positive = hn::IfThenElse(hn::Lt(exact, hn::Zero(d)), hn::Zero(d), exact);
      const Dim at = c + v * kWidth;
      join(weights, hn::Add(mean[v], off), positive, all_mean + at, all_squares + at, n);
    }
  });
}

template <class T>
HWY_INLINE void moments_of(const T* x, const ChannelForm& f, Dim task, float* mean,
                           float* squares) {
  const Dim begin = f.first_chunk(task), end = f.first_chunk(task + 1);
  for (Dim chunk = begin; chunk < end; ++chunk) {
    const Dim first = chunk * f.chunk_rows, rows = std::min(f.chunk_rows, f.rows - first);
    chunk_moments(x + first * f.period, rows, f.period, Join((chunk - begin) * f.chunk_rows, rows),
                  mean, squares);
  }
}

// Joins the moments of all tasks, [task][mean, squares][period], into the first one's.
void join_tasks(const ChannelForm& f, float* moments) {
  auto rows_before = [&](Dim task) { return std::min(f.rows, f.first_chunk(task) * f.chunk_rows); };
  for (Dim task = 1; task < f.tasks; ++task) {
    const Join weights(rows_before(task), rows_before(task + 1) - rows_before(task));
    const float* of_task = moments + task * 2 * f.period;
    along_columns(f.period, [&]<int vectors>(Dim c, Dim n) HWY_ATTR {
      for (int v = 0; v < vectors; ++v) {
        const Dim at = c + v * kWidth;
        join(weights, load(of_task + at, n), load(of_task + f.period + at, n), moments + at,
             moments + f.period + at, n);
      }
    });
  }
}

template <bool adds, bool relu, class T>
HWY_INLINE void normalise_as(const NormaliseRows<T>& p) {
  const Floats d;
  const auto zero = hn::Zero(d), most = hn::Set(d, p.most);
  along_rows(p.rows, p.columns, [&]<int rows>(Dim r, Dim c, Dim n) HWY_ATTR {
    const auto mean = load(p.mean + c, n), factor = load(p.factor + c, n);
    const auto beta = load(p.beta + c, n);
    for (int k = 0; k < rows; ++k) {
      const Dim at = (r + k) * p.period + c;
      auto value = hn::Add(hn::Mul(hn::Sub(load(p.x + at, n), mean), factor), beta);
      if constexpr (adds) value = hn::Add(value, load(p.added + at, n));
      if constexpr (relu) {
        value = hn::IfThenElse(hn::Le(value, zero), zero, value);
        value = hn::IfThenElse(hn::Ge(value, most), most, value);
      }
      store(value, p.y + at, n);
    }
  });
}

template <class T>
HWY_INLINE void normalise_any(const NormaliseRows<T>& p) {
  if (p.added)
    p.relu ? normalise_as<true, true>(p) : normalise_as<true, false>(p);
  else
    p.relu ? normalise_as<false, true>(p) : normalise_as<false, false>(p);
}

void task_moments_f32(const float* x, const ChannelForm& f, Dim task, float* mean, float* squares) {
  moments_of(x, f, task, mean, squares);
}
void task_moments_bf16(const Bfloat16* x, const ChannelForm& f, Dim task, float* mean,
                       float* squares) {
  moments_of(x, f, task, mean, squares);
}
void normalise_f32(const NormaliseRows<float>& p) { normalise_any(p); }
void normalise_bf16(const NormaliseRows<Bfloat16>& p) { normalise_any(p); }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(task_moments_f32);
HWY_EXPORT(task_moments_bf16);
HWY_EXPORT(join_tasks);
HWY_EXPORT(normalise_f32);
HWY_EXPORT(normalise_bf16);

namespace {

void task_moments(const float* x, const ChannelForm& f, Dim task, float* mean, float* squares) {
  HWY_DYNAMIC_DISPATCH(task_moments_f32)(x, f, task, mean, squares);
}
void task_moments(const Bfloat16* x, const ChannelForm& f, Dim task, float* mean, float* squares) {
  HWY_DYNAMIC_DISPATCH(task_moments_bf16)(x, f, task, mean, squares);
}
void normalise_rows(const NormaliseRows<float>& p) { HWY_DYNAMIC_DISPATCH(normalise_f32)(p); }
void normalise_rows(const NormaliseRows<Bfloat16>& p) { HWY_DYNAMIC_DISPATCH(normalise_bf16)(p); }

// Joins columns that are one channel, and the pixels behind the last whole row, in float64.
template <class T>
void join_columns(const ChannelForm& f, const T* x, const float* moments, float* mean,
                  float* variance) {
  const T* tail = x + f.rows * f.period;
  const Dim left = f.tail / f.channels;
  const double rows = static_cast<double>(f.rows);
  for (Dim c = 0; c < f.channels; ++c) {
    double average = f.rows > 0 ? static_cast<double>(moments[c]) : 0;
    double squares = f.rows > 0 ? static_cast<double>(moments[f.period + c]) : 0;
    for (Dim k = 1; k < f.fold && f.rows > 0; ++k) {
      const double count = static_cast<double>(k);
      const double apart = static_cast<double>(moments[k * f.channels + c]) - average;
      average += apart / (count + 1);
      squares += static_cast<double>(moments[f.period + k * f.channels + c]) +
                 apart * apart * rows * count / (count + 1);
    }
    for (Dim k = 0; k < left; ++k) {
      const double count = static_cast<double>(f.rows * f.fold + k);
      const double apart =
          static_cast<double>(static_cast<float>(tail[k * f.channels + c])) - average;
      average += apart / (count + 1);
      squares += apart * apart * count / (count + 1);
    }
    mean[c] = static_cast<float>(average);
    variance[c] = static_cast<float>(squares / static_cast<double>(f.pixels));
  }
}

Bytes moments_bytes(const ChannelForm& f) { return 2 * f.tasks * f.row_bytes(); }

template <class T>
void find_moments(const ChannelForm& f, const T* x, float* mean, float* variance,
                  float* workspace) {
  parallel_ranges(f.threads, f.tasks, f.work(), [&](Dim begin, Dim end) {
    for (Dim task = begin; task < end; ++task) {
      float* of_task = workspace + task * 2 * f.period;
      task_moments(x, f, task, of_task, of_task + f.period);
    }
  });
  HWY_DYNAMIC_DISPATCH(join_tasks)(f, workspace);
  join_columns(f, x, workspace, mean, variance);
}

struct Parameters {
  const float *mean, *variance, *gamma, *beta;
  double epsilon;
  bool relu = false;
  float most = 0;
};

Bytes normalise_bytes(const ChannelForm& f) { return 3 * f.row_bytes(); }

// `added` may be null.
template <class T>
void normalise(const ChannelForm& f, const T* x, const Parameters& parameters, const T* added, T* y,
               float* workspace) {
  NormaliseRows<T> all{.mean = workspace,
                       .factor = workspace + f.period,
                       .beta = workspace + 2 * f.period,
                       .period = f.period,
                       .relu = parameters.relu,
                       .most = parameters.most};
  repeat(f, parameters.mean, workspace);
  find_factors(f, parameters.variance, parameters.gamma, parameters.epsilon, workspace + f.period);
  repeat(f, parameters.beta, workspace + 2 * f.period);
  auto run = [&](Dim first, Dim rows, Dim columns) {
    NormaliseRows<T> part = all;
    const Dim at = first * f.period;
    part.x = x + at;
    part.added = added ? added + at : nullptr;
    part.y = y + at;
    part.rows = rows;
    part.columns = columns;
    normalise_rows(part);
  };
  parallel_ranges(f.threads, f.rows, f.work(),
                  [&](Dim begin, Dim end) { run(begin, end - begin, f.period); });
  if (f.tail > 0) run(f.rows, 1, f.tail);
}

}  // namespace

std::unique_ptr<Kernel> batch_moments_simd(const PrepareCall& call) {
  const ChannelForm f = channel_form(call);
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          find_moments(f, static_cast<const T*>(in[0]), static_cast<float*>(out[0]),
                       static_cast<float*>(out[1]), static_cast<float*>(workspace));
        },
        moments_bytes(f));
  });
}

std::unique_ptr<Kernel> batch_norm_apply_simd(const PrepareCall& call) {
  const ChannelForm f = channel_form(call);
  const double epsilon = call.attrs.real("epsilon");
  const bool relu = call.attrs.has("activation"), adds = call.in.size() > 5;
  const float most = static_cast<float>(clip_of(call.attrs));
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          auto image = [&](int i) { return static_cast<const T*>(in[i]); };
          auto input = [&](int i) { return static_cast<const float*>(in[i]); };
          normalise(f, image(0), {input(1), input(2), input(3), input(4), epsilon, relu, most},
                    adds ? image(5) : nullptr, static_cast<T*>(out[0]),
                    static_cast<float*>(workspace));
        },
        normalise_bytes(f));
  });
}

std::unique_ptr<Kernel> batch_norm_simd(const PrepareCall& call) {
  const ChannelForm f = channel_form(call);
  const double epsilon = call.attrs.real("epsilon");
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          const T* x = static_cast<const T*>(in[0]);
          const T* none = nullptr;
          auto input = [&](int i) { return static_cast<const float*>(in[i]); };
          auto output = [&](int i) { return static_cast<float*>(out[i]); };
          float* space = static_cast<float*>(workspace);
          find_moments(f, x, output(1), output(2), space);
          normalise(f, x, {output(1), output(2), input(1), input(2), epsilon}, none,
                    static_cast<T*>(out[0]), space);
        },
        std::max(moments_bytes(f), normalise_bytes(f)));
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
