// group_norm and its gradients, float32 and bfloat16, compiled once for each SIMD target. Channels
// lie in lanes. A sample is read in pieces of rows, whose size depends on the shape alone: columns
// of a piece are summed in float32, pieces join in float64 and in order. Squares are of distances
// from the piece's own average, so that a mean far from 0 costs no digits.
#include "op/group_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/group_norm_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "hwy/highway.h"
#include "op/group_norm_plan.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

// body(columns<n>, j, count) for the columns of a row, by n vectors while there are as many.
template <class Body>
HWY_INLINE void along_columns(Dim width, const Body& body) {
  Dim j = 0;
  for (; j + 4 * kWidth <= width; j += 4 * kWidth)
    body(std::integral_constant<int, 4>(), j, kWidth);
  for (; j < width; j += kWidth)
    body(std::integral_constant<int, 1>(), j, std::min(kWidth, width - j));
}

// Of each column of `rows` rows: the sum, and the sum of squared distances from its average.
template <class T>
HWY_INLINE void sum_piece(const T* x, Dim rows, Dim width, float* sums, float* squares) {
  const Floats d;
  const auto share = hn::Set(d, 1 / static_cast<float>(rows));
  along_columns(width, [&](auto vectors, Dim j, Dim n) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    FloatVector sum[kVectors], square[kVectors];
    for (int v = 0; v < kVectors; ++v) sum[v] = square[v] = hn::Zero(d);
    for (Dim r = 0; r < rows; ++r)
      for (int v = 0; v < kVectors; ++v)
        sum[v] = hn::Add(sum[v], load(x + r * width + j + v * kWidth, n));
    FloatVector average[kVectors];
    for (int v = 0; v < kVectors; ++v) average[v] = hn::Mul(sum[v], share);
    for (Dim r = 0; r < rows; ++r)
      for (int v = 0; v < kVectors; ++v) {
        const auto apart = hn::Sub(load(x + r * width + j + v * kWidth, n), average[v]);
        square[v] = hn::Add(square[v], hn::Mul(apart, apart));
      }
    for (int v = 0; v < kVectors; ++v) {
      // The average is rounded: what is left of the sum of distances is taken off again.
      const auto left = hn::Sub(sum[v], hn::Mul(average[v], hn::Set(d, static_cast<float>(rows))));
      square[v] = hn::Sub(square[v], hn::Mul(hn::Mul(left, left), share));
      store(sum[v], sums + j + v * kWidth, n);
      store(square[v], squares + j + v * kWidth, n);
    }
  });
}

// Of each column the sums of dy * (x - mean) and of dy.
template <class T>
HWY_INLINE void sum_products(const T* x, const T* dy, const float* mean, Dim rows, Dim width,
                             float* products, float* sums) {
  const Floats d;
  along_columns(width, [&](auto vectors, Dim j, Dim n) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    FloatVector product[kVectors], sum[kVectors], average[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      product[v] = sum[v] = hn::Zero(d);
      average[v] = load(mean + j + v * kWidth, n);
    }
    for (Dim r = 0; r < rows; ++r)
      for (int v = 0; v < kVectors; ++v) {
        const Dim at = r * width + j + v * kWidth;
        const auto g = load(dy + at, n);
        product[v] = hn::Add(product[v], hn::Mul(g, hn::Sub(load(x + at, n), average[v])));
        sum[v] = hn::Add(sum[v], g);
      }
    for (int v = 0; v < kVectors; ++v) {
      store(product[v], products + j + v * kWidth, n);
      store(sum[v], sums + j + v * kWidth, n);
    }
  });
}

// (x - mean) * scale + shift, which lie one behind the other in `columns`.
template <class T>
HWY_INLINE void normalise(const T* x, T* y, const float* columns, Dim rows, Dim width) {
  const float *mean = columns, *scale = columns + width, *shift = columns + 2 * width;
  for (Dim r = 0; r < rows; ++r, x += width, y += width)
    along_row(width, [&](Dim j, Dim n) HWY_ATTR {
      const auto centred = hn::Sub(load(x + j, n), load(mean + j, n));
      store(hn::Add(hn::Mul(centred, load(scale + j, n)), load(shift + j, n)), y + j, n);
    });
}

// dy * scale - (x - mean) * slope - flat; mean, scale, slope and flat in `columns`.
template <class T>
HWY_INLINE void slope_piece(const T* x, const T* dy, T* dx, const float* columns, Dim rows,
                            Dim width) {
  const float *mean = columns, *scale = columns + width;
  const float *slope = columns + 2 * width, *flat = columns + 3 * width;
  for (Dim r = 0; r < rows; ++r, x += width, dy += width, dx += width)
    along_row(width, [&](Dim j, Dim n) HWY_ATTR {
      const auto centred = hn::Sub(load(x + j, n), load(mean + j, n));
      const auto straight = hn::Mul(load(dy + j, n), load(scale + j, n));
      const auto bent = hn::Mul(centred, load(slope + j, n));
      store(hn::Sub(hn::Sub(straight, bent), load(flat + j, n)), dx + j, n);
    });
}

// A sample's mean and rstd from its pieces, and what `normalise` reads.
void join_moments(const GroupNormPlan& plan, const GroupNormSpace& s, const float* gamma,
                  const float* beta, double epsilon, float* mean, float* rstd) {
  const Dim width = plan.width, channels = plan.form.channels, each = plan.form.each;
  const double count = static_cast<double>(plan.form.count());
  auto total_of = [&](Dim group) {
    double total = 0;
    for (Dim first = group * each; first < width; first += channels)
      for (Dim j = first; j < first + each; ++j) total += s.totals[j];
    return total;
  };
  auto spread = [&](Dim group, float value, float* to) {
    for (Dim first = group * each; first < width; first += channels)
      std::fill(to + first, to + first + each, value);
  };
  std::fill(s.totals, s.totals + width, 0.0);
  for (Dim p = 0; p < plan.pieces; ++p) {
    const float* sums = plan.part(s, p, 0);
    for (Dim j = 0; j < width; ++j) s.totals[j] += static_cast<double>(sums[j]);
  }
  for (Dim g = 0; g < plan.form.groups; ++g) {
    mean[g] = static_cast<float>(total_of(g) / count);
    spread(g, mean[g], s.columns);
  }
  std::fill(s.totals, s.totals + width, 0.0);
  for (Dim p = 0; p < plan.pieces; ++p) {
    const double rows = static_cast<double>(plan.rows_of(p)), share = 1 / rows;
    const float *sums = plan.part(s, p, 0), *squares = plan.part(s, p, 1);
    for (Dim j = 0; j < width; ++j) {
      const double apart = static_cast<double>(sums[j]) * share - static_cast<double>(s.columns[j]);
      s.totals[j] += static_cast<double>(squares[j]) + rows * apart * apart;
    }
  }
  for (Dim g = 0; g < plan.form.groups; ++g) {
    rstd[g] = static_cast<float>(1 / std::sqrt(total_of(g) / count + epsilon));
    spread(g, rstd[g], s.columns + width);
  }
  for (Dim j = 0; j < width; ++j) {
    s.columns[width + j] *= gamma[j % channels];
    s.columns[2 * width + j] = beta[j % channels];
  }
}

// Columns of all pieces as the channels' sums, times rstd where that is given.
void join_sums(const GroupNormPlan& plan, const GroupNormSpace& s, int which, const float* rstd,
               float* to) {
  std::fill(s.totals, s.totals + plan.width, 0.0);
  for (Dim p = 0; p < plan.pieces; ++p) {
    const float* sums = plan.part(s, p, which);
    for (Dim j = 0; j < plan.width; ++j) s.totals[j] += static_cast<double>(sums[j]);
  }
  for (Dim c = 0; c < plan.form.channels; ++c) {
    double total = 0;
    for (Dim j = c; j < plan.width; j += plan.form.channels) total += s.totals[j];
    const float factor = rstd ? rstd[c / plan.form.each] : 1.0f;
    to[c] = static_cast<float>(total * static_cast<double>(factor));
  }
}

// One of each for float32 and for bfloat16.
void sum_piece_f32(const float* x, Dim rows, Dim width, float* sums, float* squares) {
  sum_piece(x, rows, width, sums, squares);
}
void sum_piece_bf16(const Bfloat16* x, Dim rows, Dim width, float* sums, float* squares) {
  sum_piece(x, rows, width, sums, squares);
}
void sum_products_f32(const float* x, const float* dy, const float* mean, Dim rows, Dim width,
                      float* products, float* sums) {
  sum_products(x, dy, mean, rows, width, products, sums);
}
void sum_products_bf16(const Bfloat16* x, const Bfloat16* dy, const float* mean, Dim rows,
                       Dim width, float* products, float* sums) {
  sum_products(x, dy, mean, rows, width, products, sums);
}
void normalise_f32(const float* x, float* y, const float* columns, Dim rows, Dim width) {
  normalise(x, y, columns, rows, width);
}
void normalise_bf16(const Bfloat16* x, Bfloat16* y, const float* columns, Dim rows, Dim width) {
  normalise(x, y, columns, rows, width);
}
void slope_piece_f32(const float* x, const float* dy, float* dx, const float* columns, Dim rows,
                     Dim width) {
  slope_piece(x, dy, dx, columns, rows, width);
}
void slope_piece_bf16(const Bfloat16* x, const Bfloat16* dy, Bfloat16* dx, const float* columns,
                      Dim rows, Dim width) {
  slope_piece(x, dy, dx, columns, rows, width);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(sum_piece_f32);
HWY_EXPORT(sum_piece_bf16);
HWY_EXPORT(sum_products_f32);
HWY_EXPORT(sum_products_bf16);
HWY_EXPORT(normalise_f32);
HWY_EXPORT(normalise_bf16);
HWY_EXPORT(slope_piece_f32);
HWY_EXPORT(slope_piece_bf16);
HWY_EXPORT(join_moments);
HWY_EXPORT(join_sums);

namespace {

// The function of the two for elements of T.
template <class T, class F, class B>
auto chosen(F of_float, B of_bfloat) {
  if constexpr (std::is_same_v<T, Bfloat16>)
    return of_bfloat;
  else
    return of_float;
}

// What slope_piece reads of a sample.
void spread_columns(const GroupNormPlan& plan, Dim b, const float* gamma, const float* mean,
                    const float* rstd, const float* of_normal, const float* of_dy, float* columns) {
  const Dim width = plan.width, channels = plan.form.channels, each = plan.form.each;
  const double count = static_cast<double>(plan.form.count());
  for (Dim g = 0; g < plan.form.groups; ++g) {
    double slope = 0, flat = 0;
    for (Dim c = g * each; c < (g + 1) * each; ++c) {
      slope += static_cast<double>(gamma[c]) * static_cast<double>(of_normal[b * channels + c]);
      flat += static_cast<double>(gamma[c]) * static_cast<double>(of_dy[b * channels + c]);
    }
    const float average = mean[b * plan.form.groups + g], inverse = rstd[b * plan.form.groups + g];
    for (Dim first = 0; first < width; first += channels)
      for (Dim c = g * each; c < (g + 1) * each; ++c) {
        float* to = columns + first + c;
        to[0] = average;
        to[width] = inverse * gamma[c];
        to[2 * width] = inverse * inverse * static_cast<float>(slope / count);
        to[3 * width] = inverse * static_cast<float>(flat / count);
      }
  }
}

bool has_float_parameters(const PrepareCall& call) {
  for (size_t i = 1; i < call.in.size(); ++i)
    if (call.in[i].shape != call.in[0].shape && call.in[i].dtype != Dtype::float32) return false;
  return true;
}

}  // namespace

std::unique_ptr<Kernel> group_norm_simd(const PrepareCall& call) {
  if (!has_float_parameters(call)) return nullptr;
  const int threads = call.backend.threads();
  const GroupNormPlan plan(group_norm_form(call.in[0], call.out[1].shape[1]), threads);
  const double epsilon = call.attrs.real("epsilon");
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    const auto sum =
        chosen<T>(&HWY_DYNAMIC_DISPATCH(sum_piece_f32), &HWY_DYNAMIC_DISPATCH(sum_piece_bf16));
    const auto apply =
        chosen<T>(&HWY_DYNAMIC_DISPATCH(normalise_f32), &HWY_DYNAMIC_DISPATCH(normalise_bf16));
    const auto join = &HWY_DYNAMIC_DISPATCH(join_moments);
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          const T* x = static_cast<const T*>(in[0]);
          const float* gamma = static_cast<const float*>(in[1]);
          const float* beta = static_cast<const float*>(in[2]);
          T* y = static_cast<T*>(out[0]);
          float* mean = static_cast<float*>(out[1]);
          float* rstd = static_cast<float*>(out[2]);
          in_stages(
              plan, threads, kNoStage,
              [&](Dim b, Dim slot, Dim p) {
                const GroupNormSpace s = plan.space(workspace, slot);
                sum(x + plan.at(b, p), plan.rows_of(p), plan.width, plan.part(s, p, 0),
                    plan.part(s, p, 1));
              },
              [&](Dim b, Dim slot) {
                join(plan, plan.space(workspace, slot), gamma, beta, epsilon,
                     mean + b * plan.form.groups, rstd + b * plan.form.groups);
              },
              [&](Dim b, Dim slot, Dim p) {
                apply(x + plan.at(b, p), y + plan.at(b, p), plan.space(workspace, slot).columns,
                      plan.rows_of(p), plan.width);
              });
        },
        plan.slots * plan.slot_bytes());
  });
}

std::unique_ptr<Kernel> group_norm_sums_simd(const PrepareCall& call) {
  if (!has_float_parameters(call)) return nullptr;
  const int threads = call.backend.threads();
  const GroupNormPlan plan(group_norm_form(call.in[0], call.in[1].shape[1]), threads);
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    const auto sum = chosen<T>(&HWY_DYNAMIC_DISPATCH(sum_products_f32),
                               &HWY_DYNAMIC_DISPATCH(sum_products_bf16));
    const auto join = &HWY_DYNAMIC_DISPATCH(join_sums);
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          const T* x = static_cast<const T*>(in[0]);
          const float* mean = static_cast<const float*>(in[1]);
          const float* rstd = static_cast<const float*>(in[2]);
          const T* dy = static_cast<const T*>(in[3]);
          float* of_normal = static_cast<float*>(out[0]);
          float* of_dy = static_cast<float*>(out[1]);
          in_stages(
              plan, threads,
              [&](Dim b, Dim slot) {
                float* columns = plan.space(workspace, slot).columns;
                for (Dim j = 0; j < plan.width; ++j) columns[j] = mean[plan.group(b, j)];
              },
              [&](Dim b, Dim slot, Dim p) {
                const GroupNormSpace s = plan.space(workspace, slot);
                sum(x + plan.at(b, p), dy + plan.at(b, p), s.columns, plan.rows_of(p), plan.width,
                    plan.part(s, p, 0), plan.part(s, p, 1));
              },
              [&](Dim b, Dim slot) {
                const GroupNormSpace s = plan.space(workspace, slot);
                const Dim at = b * plan.form.channels;
                join(plan, s, 0, rstd + b * plan.form.groups, of_normal + at);
                join(plan, s, 1, nullptr, of_dy + at);
              },
              kNoStage);
        },
        plan.slots * plan.slot_bytes());
  });
}

std::unique_ptr<Kernel> group_norm_gradient_simd(const PrepareCall& call) {
  if (!has_float_parameters(call)) return nullptr;
  const int threads = call.backend.threads();
  const GroupNormPlan plan(group_norm_form(call.in[0], call.in[2].shape[1]), threads);
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    const auto apply =
        chosen<T>(&HWY_DYNAMIC_DISPATCH(slope_piece_f32), &HWY_DYNAMIC_DISPATCH(slope_piece_bf16));
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          const T* x = static_cast<const T*>(in[0]);
          const float* gamma = static_cast<const float*>(in[1]);
          const float* mean = static_cast<const float*>(in[2]);
          const float* rstd = static_cast<const float*>(in[3]);
          const T* dy = static_cast<const T*>(in[4]);
          const float* of_normal = static_cast<const float*>(in[5]);
          const float* of_dy = static_cast<const float*>(in[6]);
          T* dx = static_cast<T*>(out[0]);
          in_stages(
              plan, threads,
              [&](Dim b, Dim slot) {
                spread_columns(plan, b, gamma, mean, rstd, of_normal, of_dy,
                               plan.space(workspace, slot).columns);
              },
              kNoStage, kNoStage,
              [&](Dim b, Dim slot, Dim p) {
                const Dim at = plan.at(b, p);
                apply(x + at, dy + at, dx + at, plan.space(workspace, slot).columns,
                      plan.rows_of(p), plan.width);
              });
        },
        plan.slots * plan.slot_bytes());
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
