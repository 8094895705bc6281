// Vectors of layer_norm: a warp for each, kept in registers where it is short enough.
#pragma once

#include "op/cuda/columns-inl.cuh"

namespace pl::cuda {

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

inline NormRows norm_rows(const PrepareCall& call) {
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

// Where sums over all vectors go: dgamma, dbeta, [that of dx].
template <class W, int K>
struct NormParameterEnd {
  SumEnd<W> ends[K];
  __device__ void ahead(int64_t, int64_t column) const {
#pragma unroll
    for (int k = 0; k < K; ++k) ends[k].ahead(column);
  }
  __device__ void operator()(int64_t, int64_t column, const double (&sums)[K]) const {
#pragma unroll
    for (int k = 0; k < K; ++k) ends[k](column, static_cast<W>(sums[k]));
  }
};

}  // namespace pl::cuda
