// CUDA kernels of layer_norm: a warp for each vector, kept in registers between the passes over it
// where it is short enough; sums over all vectors by columns-inl.cuh.
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

struct NormRows {
  int64_t rows, features;
};

// A vector in registers: kPacks packs for each of 32 lanes, of which some may be beyond its end.
template <class T, int kPacks>
struct RowInLanes {
  static constexpr int kSize = Pack<T>::kSize;
  Wide<T> at[kPacks][kSize];

  // body(pack, its first column) for packs that exist.
  template <class F>
  __device__ static void each_pack(int64_t features, F body) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t column = (p * 32 + threadIdx.x % 32) * kSize;
      if (column < features) body(p, column);
    }
  }
  // Parameters, which are wide and belong to all rows.
  __device__ void load_parameters(const Wide<T>* from, int64_t features) {
    each_pack(features, [&](int p, int64_t column) {
      constexpr int kWide = Pack<Wide<T>>::kSize;
#pragma unroll
      for (int j = 0; j < kSize; j += kWide) {
        const Pack<Wide<T>> pack = load_pack(from + column + j);
#pragma unroll
        for (int i = 0; i < kWide; ++i) at[p][j + i] = pack.at[i];
      }
    });
  }
  __device__ void load(const T* row, int64_t features) {
    each_pack(features, [&](int p, int64_t column) { load_wide<kSize>(row + column, at[p]); });
  }
};

__device__ inline int64_t warp_index() { return thread_index() / 32; }
__device__ inline int64_t warp_count() { return thread_count() / 32; }

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

// All gradients: dx as above, with `added` where it is not null, and the sums over rows, of which
// each block writes its share: parts (blocks, 2, features). Warps of a block join theirs in order.
constexpr int kNormWarps = 4, kNormBlocks = 3;  // of a block; of a processor, all at once
template <class T, int kPacks>
__global__ void __launch_bounds__(kNormWarps * 32, kNormBlocks)
    norm_all_gradients(NormRows f, const T* x, const Wide<T>* gamma, const Wide<T>* mean,
                       const Wide<T>* rstd, const T* dy, const T* added, T* dx, Wide<T>* parts) {
  using W = Wide<T>;
  using Row = RowInLanes<T, kPacks>;
  __shared__ W shared[kNormWarps][32 * Row::kSize + 1];
  const W share = W(1) / static_cast<W>(f.features);
  Row scale, sums[2];
  scale.load_parameters(gamma, f.features);
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
#pragma unroll
    for (int j = 0; j < Row::kSize; ++j) sums[0].at[p][j] = sums[1].at[p][j] = W(0);
  for (int64_t r = f.rows - 1 - warp_index(); r >= 0; r -= warp_count()) {
    Row n, g;
    n.load(x + r * f.features, f.features);
    g.load(dy + r * f.features, f.features);
    Pack<T> more[kPacks];  // asked for early: it comes while the row is summed
    if (added)
      Row::each_pack(f.features, [&](int p, int64_t column) {
        more[p] = load_pack(added + r * f.features + column);
      });
    const W average = mean[r], inverse = rstd[r];
    W sum = 0, dot = 0;
    Row::each_pack(f.features, [&](int p, int64_t) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        n.at[p][j] = (n.at[p][j] - average) * inverse;
        sums[0].at[p][j] += g.at[p][j] * n.at[p][j];
        sums[1].at[p][j] += g.at[p][j];
        g.at[p][j] *= scale.at[p][j];
        sum += g.at[p][j];
        dot += g.at[p][j] * n.at[p][j];
      }
    });
    const W flat = warp_all(sum, Plus{}) * share, slope = warp_all(dot, Plus{}) * share;
    Row::each_pack(f.features, [&](int p, int64_t column) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        g.at[p][j] = inverse * (g.at[p][j] - flat - n.at[p][j] * slope);
        if (added) g.at[p][j] += widen(more[p].at[j]);
      }
      store_narrow<Row::kSize>(dx + r * f.features + column, g.at[p]);
    });
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      __syncthreads();
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j)
        shared[warp][j * 32 + lane] = sums[k].at[p][j];
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < 32 * Row::kSize; i += kNormWarps * 32) {
        const int64_t column = p * 32 * Row::kSize + i;
        const int at = i % Row::kSize * 32 + i / Row::kSize;
        W total = shared[0][at];
#pragma unroll
        for (int w = 1; w < kNormWarps; ++w) total += shared[w][at];
        if (column < f.features) parts[(blockIdx.x * int64_t{2} + k) * f.features + column] = total;
      }
    }
}

NormRows norm_rows(const PrepareCall& call) {
  const int64_t features = call.in[0].shape.back();
  return {call.in[0].elements() / features, features};
}
// Packs of a lane that hold a row; 0: too long, or not a whole number of packs.
template <class T>
int packs_of_lane(int64_t features) {
  constexpr int kSize = Pack<T>::kSize;
  if (features % kSize != 0) return 0;
  const int64_t packs = (features / kSize + 31) / 32;
  return packs <= 1 ? 1 : packs <= 3 ? 3 : packs <= 4 ? 4 : packs <= 8 ? 8 : 0;
}
template <class F>
void with_packs(int packs, F body) {
  if (packs == 1) return body.template operator()<1>();
  if (packs == 3) return body.template operator()<3>();
  if (packs == 4) return body.template operator()<4>();
  body.template operator()<8>();
}

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
        column_plan(1, f.rows, f.features, Pack<T>::kSize, backend_of(call).multiprocessors());
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

// Rows that lanes hold take one pass; others the kernels of the parts, and one that adds.
std::unique_ptr<Kernel> layer_norm_gradients(const PrepareCall& call) {
  const NormRows f = norm_rows(call);
  const bool adds = call.in.size() > 5;
  return dispatch_real(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    using W = Wide<T>;
    const int packs = packs_of_lane<T>(f.features);
    if (packs == 0 || packs > 4 || f.rows == 0) return nullptr;
    const int64_t rows = (f.rows + kNormWarps - 1) / kNormWarps;
    ColumnPlan ends{.rows = f.rows, .columns = f.features};
    ends.pieces = std::min<int64_t>(rows, backend_of(call).multiprocessors() * int64_t{kNormBlocks});
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          W* parts = reinterpret_cast<W*>(workspace);
          with_packs(packs, [&]<int kPacks>() {
            if constexpr (kPacks <= 4)
              norm_all_gradients<T, kPacks>
                  <<<static_cast<unsigned>(ends.pieces), kNormWarps * 32, 0, launch.stream>>>(
                      f, input<T>(in, 0), input<W>(in, 1), input<W>(in, 2), input<W>(in, 3),
                      input<T>(in, 4), adds ? input<T>(in, 5) : nullptr, output<T>(out, 0), parts);
          });
          const dim3 grid(static_cast<unsigned>((f.features + 31) / 32));
          column_ends<2, W><<<grid, dim3(32, 32), 0, launch.stream>>>(
              ends, parts, NormParameterEnd<W>{output<W>(out, 1), output<W>(out, 2)});
        },
        ends.bytes(2, sizeof(W)));
  });
}

}  // namespace pl::cuda
