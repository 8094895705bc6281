// CUDA kernels of layer_norm: a warp for each vector, kept in registers between the passes over it
// where it is short enough; sums over all vectors by columns-inl.cuh.
#include "op/cuda/kernels.h"
#include "op/cuda/norm_rows-inl.cuh"

namespace pl::cuda {
namespace {

template <class T, int kPacks>
__global__ void normalise_rows(NormRows f, const T* x, const Wide<T>* gamma, const Wide<T>* beta,
                               T* y, Wide<T>* mean, Wide<T>* rstd, double epsilon) {
  using W = Wide<T>;
  using Row = RowInLanes<T, kPacks>;
  const W share = W(1) / static_cast<W>(f.features);
  Row scale, shift;
  if (kPacks <= 4) {
    scale.load_parameters(gamma, f.features);
    shift.load_parameters(beta, f.features);
  }
  // From the last row on, which is still in the cache; the reader of y then finds its first rows.
  for (int64_t r = f.rows - 1 - warp_index(); r >= 0; r -= warp_count()) {
    if (kPacks > 4) {  // too many to keep
      scale.load_parameters(gamma, f.features);
      shift.load_parameters(beta, f.features);
    }
    Row row;
    row.load(x + r * f.features, f.features);
    W sum = 0, squares = 0;
    Row::each_pack(f.features, [&](int p, int64_t) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) sum += row.at[p][j];
    });
    const W average = warp_all(sum, Plus{}) * share;
    Row::each_pack(f.features, [&](int p, int64_t) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        row.at[p][j] -= average;
        squares += row.at[p][j] * row.at[p][j];
      }
    });
    const W inverse = W(1) / sqrt_of(warp_all(squares, Plus{}) * share + static_cast<W>(epsilon));
    Row::each_pack(f.features, [&](int p, int64_t column) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j)
        row.at[p][j] = row.at[p][j] * inverse * scale.at[p][j] + shift.at[p][j];
      store_narrow<Row::kSize>(y + r * f.features + column, row.at[p]);
    });
    if (threadIdx.x % 32 == 0) {
      mean[r] = average;
      rstd[r] = inverse;
    }
  }
}

// Vectors of any length: a block each, read again for every pass.
template <class T>
__global__ void normalise_long_rows(NormRows f, const T* x, const Wide<T>* gamma,
                                    const Wide<T>* beta, T* y, Wide<T>* mean, Wide<T>* rstd,
                                    double epsilon) {
  using W = Wide<T>;
  __shared__ W shared[32];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
    const T* row = x + r * f.features;
    W sum = 0, squares = 0;
    each_of_row(row, f.features, thread, threads, [&](W v, int64_t) { sum += v; });
    const W average = block_all(sum, W(0), shared, Plus{}) / static_cast<W>(f.features);
    each_of_row(row, f.features, thread, threads,
                [&](W v, int64_t) { squares += (v - average) * (v - average); });
    const W variance = block_all(squares, W(0), shared, Plus{}) / static_cast<W>(f.features);
    const W inverse = W(1) / sqrt_of(variance + static_cast<W>(epsilon));
    map_row(row, y + r * f.features, f.features, thread, threads,
            [&](W v, int64_t j) { return (v - average) * inverse * gamma[j] + beta[j]; });
    if (thread == 0) {
      mean[r] = average;
      rstd[r] = inverse;
    }
  }
}

template <class T, int kPacks>
__global__ void norm_gradient_rows(NormRows f, const T* x, const Wide<T>* gamma,
                                   const Wide<T>* mean, const Wide<T>* rstd, const T* dy, T* dx) {
  using W = Wide<T>;
  using Row = RowInLanes<T, kPacks>;
  const W share = W(1) / static_cast<W>(f.features);
  Row scale;
  if (kPacks <= 4) scale.load_parameters(gamma, f.features);
  for (int64_t r = warp_index(); r < f.rows; r += warp_count()) {
    if (kPacks > 4) scale.load_parameters(gamma, f.features);
    Row n, g;
    n.load(x + r * f.features, f.features);
    g.load(dy + r * f.features, f.features);
    const W average = mean[r], inverse = rstd[r];
    W sum = 0, dot = 0;
    Row::each_pack(f.features, [&](int p, int64_t) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        n.at[p][j] = (n.at[p][j] - average) * inverse;
        g.at[p][j] *= scale.at[p][j];
        sum += g.at[p][j];
        dot += g.at[p][j] * n.at[p][j];
      }
    });
    const W flat = warp_all(sum, Plus{}) * share, slope = warp_all(dot, Plus{}) * share;
    Row::each_pack(f.features, [&](int p, int64_t column) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j)
        g.at[p][j] = inverse * (g.at[p][j] - flat - n.at[p][j] * slope);
      store_narrow<Row::kSize>(dx + r * f.features + column, g.at[p]);
    });
  }
}

template <class T>
__global__ void norm_gradient_long_rows(NormRows f, const T* x, const Wide<T>* gamma,
                                        const Wide<T>* mean, const Wide<T>* rstd, const T* dy,
                                        T* dx) {
  using W = Wide<T>;
  __shared__ W shared[32];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
    const T *row = x + r * f.features, *gradient = dy + r * f.features;
    const W average = mean[r], inverse = rstd[r];
    W sum = 0, dot = 0;
    each_of_row(row, f.features, thread, threads, [&](W v, int64_t j) {
      const W g = widen(gradient[j]) * gamma[j];
      sum += g;
      dot += g * (v - average) * inverse;
    });
    const W flat = block_all(sum, W(0), shared, Plus{}) / static_cast<W>(f.features);
    const W slope = block_all(dot, W(0), shared, Plus{}) / static_cast<W>(f.features);
    // An element at a time: dx may lie on x or dy.
    for (int64_t j = thread; j < f.features; j += threads) {
      const W n = (widen(row[j]) - average) * inverse;
      dx[r * f.features + j] =
          static_cast<T>(inverse * (widen(gradient[j]) * gamma[j] - flat - n * slope));
    }
  }
}

template <class T>
struct NormParameterTerm {
  const T *x, *dy;
  const Wide<T>*mean, *rstd;
  int64_t features;
  template <int N>
  struct Lane {
    __device__ Lane(const NormParameterTerm&, int64_t) {}
    template <class A>
    __device__ void add(const NormParameterTerm& t, int64_t row, int64_t column,
                        A (&sums)[2][N]) const {
      Wide<T> v[N], g[N];
      load_wide<N>(t.x + row * t.features + column, v);
      load_wide<N>(t.dy + row * t.features + column, g);
      const Wide<T> average = t.mean[row], inverse = t.rstd[row];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        sums[0][j] += g[j] * ((v[j] - average) * inverse);
        sums[1][j] += g[j];
      }
    }
  };
};
template <class W>
struct NormParameterEnd {
  W *dgamma, *dbeta;
  __device__ void operator()(int64_t, int64_t column, const double (&sums)[2]) const {
    dgamma[column] = static_cast<W>(sums[0]);
    dbeta[column] = static_cast<W>(sums[1]);
  }
};

}  // namespace

std::unique_ptr<Kernel> layer_norm(const PrepareCall& call) {
  const NormRows f = norm_rows(call);
  const double epsilon = call.attrs.real("epsilon");
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (f.rows == 0) return;
      const int packs = packs_of_lane<T>(f.features);
      auto go = [&](auto* kernel, unsigned blocks, unsigned threads) {
        kernel<<<blocks, threads, 0, launch.stream>>>(
            f, input<T>(in, 0), input<W>(in, 1), input<W>(in, 2), output<T>(out, 0),
            output<W>(out, 1), output<W>(out, 2), epsilon);
      };
      if (packs == 0) return go(normalise_long_rows<T>, launch.blocks(f.rows, 1), 256);
      with_packs(packs, [&]<int kPacks>() {
        go(normalise_rows<T, kPacks>, launch.blocks(f.rows, 4, 8), 128);
      });
    });
  });
}

std::unique_ptr<Kernel> layer_norm_gradient(const PrepareCall& call) {
  const NormRows f = norm_rows(call);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (f.rows == 0) return;
      const int packs = packs_of_lane<T>(f.features);
      auto go = [&](auto* kernel, unsigned blocks, unsigned threads) {
        kernel<<<blocks, threads, 0, launch.stream>>>(f, input<T>(in, 0), input<W>(in, 1),
                                                      input<W>(in, 2), input<W>(in, 3),
                                                      input<T>(in, 4), output<T>(out, 0));
      };
      if (packs == 0) return go(norm_gradient_long_rows<T>, launch.blocks(f.rows, 1), 256);
      with_packs(packs, [&]<int kPacks>() {
        go(norm_gradient_rows<T, kPacks>, launch.blocks(f.rows, 4, 8), 128);
      });
    });
  });
}

std::unique_ptr<Kernel> layer_norm_parameter_gradient(const PrepareCall& call) {
  const NormRows f = norm_rows(call);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    const ColumnPlan plan =
        column_plan(1, f.rows, f.features, Pack<T>::kSize, backend_of(call).multiprocessors(), 2);
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          sum_columns<2, Pack<T>::kSize, W>(
              launch, plan,
              NormParameterTerm<T>{input<T>(in, 0), input<T>(in, 3), input<W>(in, 1),
                                   input<W>(in, 2), f.features},
              NormParameterEnd<W>{output<W>(out, 0), output<W>(out, 1)}, workspace);
        },
        plan.bytes(2, sizeof(W)));
  });
}

}  // namespace pl::cuda
