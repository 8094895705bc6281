// CUDA kernels of group_norm: a block for each group of each sample; sums over positions by
// columns-inl.cuh.
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/group_norm.h"

namespace pl::cuda {
namespace {

constexpr int kGroupThreads = 512;

// body(index, channel) for a thread's share of a group's elements.
template <class F>
__device__ inline void each_of_group(const GroupNormForm& f, int64_t group, F body) {
  const int64_t first = group % f.groups * f.each;
  const int64_t base = group / f.groups * f.positions * f.channels + first;
  const int64_t count = f.positions * f.each;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int64_t j = i % f.each;
    body(base + i / f.each * f.channels + j, first + j);
  }
}

template <class T>
__global__ void __launch_bounds__(kGroupThreads)
    normalise_groups(GroupNormForm f, const T* x, const Wide<T>* gamma, const Wide<T>* beta, T* y,
                     Wide<T>* mean, Wide<T>* rstd, double epsilon) {
  using W = Wide<T>;
  __shared__ W shared[32];
  const W count = static_cast<W>(f.positions * f.each);
  for (int64_t group = blockIdx.x; group < f.batch * f.groups; group += gridDim.x) {
    W sum = 0, squares = 0;
    each_of_group(f, group, [&](int64_t i, int64_t) { sum += widen(x[i]); });
    const W average = block_all(sum, W(0), shared, Plus{}) / count;
    each_of_group(f, group, [&](int64_t i, int64_t) {
      const W apart = widen(x[i]) - average;
      squares += apart * apart;
    });
    const W variance = block_all(squares, W(0), shared, Plus{}) / count;
    const W inverse = W(1) / sqrt_of(variance + static_cast<W>(epsilon));
    each_of_group(f, group, [&](int64_t i, int64_t c) {
      y[i] = static_cast<T>((widen(x[i]) - average) * inverse * gamma[c] + beta[c]);
    });
    if (threadIdx.x == 0) {
      mean[group] = average;
      rstd[group] = inverse;
    }
    __syncthreads();
  }
}

template <class T>
struct GroupSumTerm {
  const T *x, *dy;
  const Wide<T>*mean, *rstd;
  GroupNormForm f;
  template <int N>
  struct Lane {
    int64_t group[N];  // of the columns, within a sample
    __device__ Lane(const GroupSumTerm& t, int64_t column) {
#pragma unroll
      for (int j = 0; j < N; ++j) group[j] = (column + j) / t.f.each;
    }
    template <class A>
    __device__ void add(const GroupSumTerm& t, int64_t row, int64_t column, A (&sums)[2][N]) const {
      Wide<T> v[N], g[N];
      load_wide<N>(t.x + row * t.f.channels + column, v);
      load_wide<N>(t.dy + row * t.f.channels + column, g);
      const int64_t first = row / t.f.positions * t.f.groups;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int64_t at = first + group[j];
        sums[0][j] += g[j] * ((v[j] - t.mean[at]) * t.rstd[at]);
        sums[1][j] += g[j];
      }
    }
  };
};
template <class W>
struct GroupSumEnd {
  W *of_normal, *of_dy;
  int64_t channels;
  __device__ void operator()(int64_t sample, int64_t column, const double (&sums)[2]) const {
    of_normal[sample * channels + column] = static_cast<W>(sums[0]);
    of_dy[sample * channels + column] = static_cast<W>(sums[1]);
  }
};

template <class T>
__global__ void __launch_bounds__(kGroupThreads)
    group_gradients(GroupNormForm f, const T* x, const Wide<T>* gamma, const Wide<T>* mean,
                    const Wide<T>* rstd, const T* dy, const Wide<T>* of_normal,
                    const Wide<T>* of_dy, T* dx) {
  using W = Wide<T>;
  __shared__ W shared[32];
  const W share = W(1) / static_cast<W>(f.positions * f.each);
  for (int64_t group = blockIdx.x; group < f.batch * f.groups; group += gridDim.x) {
    W sum = 0, dot = 0;
    for (int64_t j = threadIdx.x; j < f.each; j += blockDim.x) {
      const W factor = gamma[group % f.groups * f.each + j];
      sum += factor * of_dy[group * f.each + j];
      dot += factor * of_normal[group * f.each + j];
    }
    const W flat = block_all(sum, W(0), shared, Plus{}) * share;
    const W slope = block_all(dot, W(0), shared, Plus{}) * share;
    const W average = mean[group], inverse = rstd[group];
    each_of_group(f, group, [&](int64_t i, int64_t c) {
      const W n = (widen(x[i]) - average) * inverse;
      dx[i] = static_cast<T>(inverse * (widen(dy[i]) * gamma[c] - flat - n * slope));
    });
    __syncthreads();
  }
}

}  // namespace

std::unique_ptr<Kernel> group_norm(const PrepareCall& call) {
  const GroupNormForm f = group_norm_form(call.in[0], call.out[1].shape[1]);
  const double epsilon = call.attrs.real("epsilon");
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (f.batch > 0)
        normalise_groups<T>
            <<<launch.blocks(f.batch * f.groups, 1), kGroupThreads, 0, launch.stream>>>(
                f, input<T>(in, 0), input<W>(in, 1), input<W>(in, 2), output<T>(out, 0),
                output<W>(out, 1), output<W>(out, 2), epsilon);
    });
  });
}

std::unique_ptr<Kernel> group_norm_sums(const PrepareCall& call) {
  const GroupNormForm f = group_norm_form(call.in[0], call.in[1].shape[1]);
  const bool packs = call.alignment() >= kFullAlignment;
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    const ColumnPlan plan =
        column_plan(f.batch, f.positions, f.channels, packs ? Pack<T>::kSize : 1,
                    backend_of(call).multiprocessors(), 2);
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          sum_columns<2, Pack<T>::kSize, W>(
              launch, plan,
              GroupSumTerm<T>{input<T>(in, 0), input<T>(in, 3), input<W>(in, 1), input<W>(in, 2),
                              f},
              GroupSumEnd<W>{output<W>(out, 0), output<W>(out, 1), f.channels}, workspace);
        },
        plan.bytes(2, sizeof(W)));
  });
}

std::unique_ptr<Kernel> group_norm_gradient(const PrepareCall& call) {
  const GroupNormForm f = group_norm_form(call.in[0], call.in[2].shape[1]);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (f.batch > 0)
        group_gradients<T>
            <<<launch.blocks(f.batch * f.groups, 1), kGroupThreads, 0, launch.stream>>>(
                f, input<T>(in, 0), input<W>(in, 1), input<W>(in, 2), input<W>(in, 3),
                input<T>(in, 4), input<W>(in, 5), input<W>(in, 6), output<T>(out, 0));
    });
  });
}

}  // namespace pl::cuda
