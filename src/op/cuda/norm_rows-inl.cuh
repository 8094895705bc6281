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

// Wide numbers of a vector in shared memory, so laid out that lanes do not wait for each other.
template <class T, int kPacks>
struct WideInLanes {
  static constexpr int kSize = Pack<Wide<T>>::kSize, kParts = Pack<T>::kSize / kSize;
  static constexpr int kNumbers = kPacks * kParts * 32 * kSize;
  Pack<Wide<T>> at[kPacks][kParts][32];

  // The column of a number, in the order of memory.
  __device__ static int column(int number) {
    const int lane = number / kSize % 32, part = number / (kSize * 32) % kParts;
    return (number / (kSize * 32 * kParts) * 32 + lane) * Pack<T>::kSize + part * kSize +
           number % kSize;
  }
  // By all threads of a block; a barrier is to follow.
  __device__ void fill(const Wide<T>* from, int64_t features) {
    Wide<T>* to = at[0][0][0].at;
    for (int i = static_cast<int>(threadIdx.x); i < kNumbers; i += blockDim.x)
      to[i] = column(i) < features ? from[column(i)] : Wide<T>(0);
  }
  // A lane's pack.
  __device__ void get(int p, Wide<T> (&to)[Pack<T>::kSize]) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const Pack<Wide<T>> pack = at[p][part][threadIdx.x % 32];
#pragma unroll
      for (int j = 0; j < kSize; ++j) to[part * kSize + j] = pack.at[j];
    }
  }
  __device__ void put(int p, const Wide<T> (&from)[Pack<T>::kSize]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      Pack<Wide<T>> pack;
#pragma unroll
      for (int j = 0; j < kSize; ++j) pack.at[j] = from[part * kSize + j];
      at[p][part][threadIdx.x % 32] = pack;
    }
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

}  // namespace pl::cuda
