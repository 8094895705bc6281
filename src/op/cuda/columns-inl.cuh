// Sums over the rows of matrices, a number or several for each column: pieces of rows first, then
// the pieces, both in a fixed order. For bias gradients, statistics of channels and the like.
#pragma once

#include "op/cuda/device-inl.cuh"

namespace pl::cuda {

// (outer, rows, columns): how the rows are cut. A block has `across` threads of neighbouring
// columns, kColumnThreads in all.
inline constexpr int kMaxReduceAxes = 12;
inline constexpr int kColumnThreads = 256;
// What fits on a processor at once, the rows that a thread asks for together, and those that are
// worth a piece of their own: one sum a column takes few registers.
constexpr int column_blocks(int sums) { return sums == 1 ? 4 : 3; }
constexpr int kColumnRows = 4;
constexpr int piece_rows(int sums) { return sums == 1 ? 8 : 4; }
struct ColumnPlan {
  int64_t outer = 1, rows = 0, columns = 0;
  int width = 1;  // columns of a thread
  int across = 32;
  int64_t blocks = 1, pieces = 1;
  Bytes bytes(int sums, Bytes size) const { return outer * pieces * sums * columns * size; }
};

// `sums`: numbers for each column.
inline ColumnPlan column_plan(int64_t outer, int64_t rows, int64_t columns, int pack,
                              int processors, int sums) {
  ColumnPlan plan{.outer = outer, .rows = rows, .columns = columns};
  plan.width = columns % pack == 0 ? pack : 1;
  const int64_t threads = (columns + plan.width - 1) / plan.width;
  plan.across = 1;
  while (plan.across < 32 && plan.across < threads) plan.across *= 2;
  plan.blocks = (threads + plan.across - 1) / plan.across;
  const int64_t down = kColumnThreads / plan.across;
  const int64_t at_once = int64_t{processors} * column_blocks(sums);
  // Nothing to add up has neither blocks nor an outer part.
  const int64_t wanted =
      std::max<int64_t>(1, at_once / std::max<int64_t>(1, plan.blocks * outer));
  const int64_t most = std::max<int64_t>(1, rows / (down * piece_rows(sums)));
  plan.pieces = std::min({wanted, most, int64_t{4096}});
  return plan;
}

template <int N, class T>
__device__ inline void load_wide(const T* from, Wide<T> (&to)[N]) {
  if constexpr (N == Pack<T>::kSize) {
    const Pack<T> pack = load_pack(from);
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = widen(pack.at[j]);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = widen(from[j]);
  }
}
template <int N, class T>
__device__ inline void store_narrow(T* to, const Wide<T> (&from)[N]) {
  if constexpr (N == Pack<T>::kSize) {
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = static_cast<T>(from[j]);
    store_pack(to, pack);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = static_cast<T>(from[j]);
  }
}

// The columns of a matrix themselves.
template <class T>
struct ColumnTerm {
  const T* x;
  int64_t columns;
  template <int N>
  struct Lane {
    // Packs as they are stored, so that several can be asked for before the first is added.
    using Row = std::conditional_t<N == Pack<T>::kSize, Pack<T>, T>;
    __device__ Lane(const ColumnTerm&, int64_t) {}
    template <class A>
    __device__ void add(const Row& row, A (&sums)[1][N]) const {
      if constexpr (N == Pack<T>::kSize)
#pragma unroll
        for (int j = 0; j < N; ++j) sums[0][j] += widen(row.at[j]);
      else
        sums[0][0] += widen(row);
    }
  };
};

// Term::Lane<N>: what a thread keeps of its N columns, made of (term, column). lane.add(term, row,
// column, sums) adds what row `row` of all (outer * rows) has for them to sums[K][N] of type A. Where
// all that a row has is a Row of the matrix term.x, lane.add(row, sums).
template <int kRows, class Lane, class Term, class Sums>
__device__ inline void add_rows(const ColumnPlan& plan, const Lane& lane, const Term& term,
                                int64_t base, int64_t first, int64_t step, int64_t column,
                                Sums& sums) {
  if constexpr (requires { typename Lane::Row; }) {
    // The last few are asked for together as well: what is not there counts as zero.
    const int64_t far = step * term.columns;
    const auto* at = term.x + (base - first) * term.columns + column;
    auto left = static_cast<int>((plan.rows - first + step - 1) / step);
    for (; left > 0; left -= kRows) {
      typename Lane::Row rows[kRows] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r, at -= far)
        if (r < left) rows[r] = *reinterpret_cast<const typename Lane::Row*>(at);
#pragma unroll
      for (int r = 0; r < kRows; ++r) lane.add(rows[r], sums);
    }
  } else {
#pragma unroll kRows
    for (int64_t row = first; row < plan.rows; row += step)
      lane.add(term, base - row, column, sums);
  }
}

template <int K, int N, class A, class Term>
__global__ void __launch_bounds__(kColumnThreads, column_blocks(K))
    column_parts(ColumnPlan plan, Term term, A* parts) {
  __shared__ A shared[kColumnThreads * N];
  const int tx = static_cast<int>(threadIdx.x) % plan.across;
  const int ty = static_cast<int>(threadIdx.x) / plan.across;
  const int down = kColumnThreads / plan.across;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * plan.across + tx) * N;
  // A piece has every plan.pieces-th run of rows: blocks that run together read what lies together.
  // From the last row on: what was written last is still in the cache, and a pass over the same rows
  // behind this one, from the first on, finds those in it.
  const int64_t first = static_cast<int64_t>(blockIdx.y) * down + ty, step = plan.pieces * down;
  for (int64_t outer = blockIdx.z; outer < plan.outer; outer += gridDim.z) {
    A sums[K][N];
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int j = 0; j < N; ++j) sums[k][j] = A(0);
    if (column < plan.columns) {
      const typename Term::template Lane<N> lane(term, column);
      add_rows<kColumnRows>(plan, lane, term, outer * plan.rows + plan.rows - 1, first, step,
                               column, sums);
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      __syncthreads();
#pragma unroll
      for (int j = 0; j < N; ++j) shared[threadIdx.x * N + j] = sums[k][j];
      __syncthreads();
      for (int half = down / 2; half > 0; half /= 2) {
        if (ty < half)
#pragma unroll
          for (int j = 0; j < N; ++j)
            shared[threadIdx.x * N + j] += shared[(threadIdx.x + half * plan.across) * N + j];
        __syncthreads();
      }
      if (ty == 0 && column < plan.columns) {
        A* to = parts + ((outer * plan.pieces + blockIdx.y) * K + k) * plan.columns + column;
#pragma unroll
        for (int j = 0; j < N; ++j) to[j] = shared[tx * N + j];
      }
    }
  }
}

// end(outer, column, sums): takes the sums of all rows, in float64. end.ahead(outer, column), if
// there is one, is told before they are made.
template <int K, class A, class End>
__global__ void __launch_bounds__(1024) column_ends(ColumnPlan plan, const A* parts, End end) {
  __shared__ double shared[K][32][33];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.y;  // of a warp
  for (int64_t outer = blockIdx.z; outer < plan.outer; outer += gridDim.z) {
    if constexpr (requires { end.ahead(outer, own); })
      if (threadIdx.x == 0 && own < plan.columns) end.ahead(outer, own);
    double sums[K] = {};
    constexpr int kAhead = 8 / K;  // asked for together; what is not there counts as zero
    if (column < plan.columns)
      for (int64_t p = threadIdx.y; p < plan.pieces; p += 32 * kAhead) {
        A values[kAhead][K] = {};
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
#pragma unroll
          for (int k = 0; k < K; ++k)
            if (p + 32 * i < plan.pieces)
              values[i][k] =
                  parts[((outer * plan.pieces + p + 32 * i) * K + k) * plan.columns + column];
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
#pragma unroll
          for (int k = 0; k < K; ++k) sums[k] += static_cast<double>(values[i][k]);
      }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; ++k) shared[k][threadIdx.y][threadIdx.x] = sums[k];
    __syncthreads();
    // A warp has a column's 32 parts, and joins them as a tree.
#pragma unroll
    for (int k = 0; k < K; ++k) sums[k] = warp_all(shared[k][threadIdx.x][threadIdx.y], Plus{});
    if (threadIdx.x == 0 && own < plan.columns) end(outer, own, sums);
  }
}

// Stores a sum that a column ends with, or adds it to what `onto` has there.
template <class W>
struct SumEnd {
  W* to;
  const W* onto = nullptr;
  __device__ void ahead(int64_t at) const {
    if (onto) asm volatile("prefetch.global.L2 [%0];" ::"l"(onto + at));
  }
  __device__ void operator()(int64_t at, W sum) const { to[at] = onto ? onto[at] + sum : sum; }
};

// Both kernels; `parts` has plan.bytes(K, sizeof(A)). N: a pack's columns, where plan.width says
// so.
template <int K, int N, class A, class Term, class End>
void sum_columns(const Launch& launch, const ColumnPlan& plan, const Term& term, const End& end,
                 void* parts) {
  if (plan.columns == 0 || plan.outer == 0) return;
  const auto outer = static_cast<unsigned>(std::min<int64_t>(plan.outer, 32768));
  const dim3 grid(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.pieces), outer);
  A* space = static_cast<A*>(parts);
  if (plan.width == N)
    column_parts<K, N, A><<<grid, kColumnThreads, 0, launch.stream>>>(plan, term, space);
  else
    column_parts<K, 1, A><<<grid, kColumnThreads, 0, launch.stream>>>(plan, term, space);
  const dim3 ends(static_cast<unsigned>((plan.columns + 31) / 32), 1, outer);
  column_ends<K, A><<<ends, dim3(32, 32), 0, launch.stream>>>(plan, space, end);
}

// body(element, index) over a row, 16 bytes at a time where it is aligned; threads step by
// `threads`.
template <class T, class F>
__device__ inline void each_of_row(const T* row, int64_t count, int thread, int threads, F body) {
  constexpr int kSize = Pack<T>::kSize;
  int64_t done = 0;
  if (reinterpret_cast<uintptr_t>(row) % 16 == 0) {
    const int64_t packs = count / kSize;
    for (int64_t p = thread; p < packs; p += threads) {
      const Pack<T> pack = load_pack(row + p * kSize);
#pragma unroll
      for (int j = 0; j < kSize; ++j) body(widen(pack.at[j]), p * kSize + j);
    }
    done = packs * kSize;
  }
  for (int64_t i = done + thread; i < count; i += threads) body(widen(row[i]), i);
}

// The same with results: to[i] = body(from[i], i); `to` may be `from`.
template <class T, class F>
__device__ inline void map_row(const T* from, T* to, int64_t count, int thread, int threads,
                               F body) {
  constexpr int kSize = Pack<T>::kSize;
  int64_t done = 0;
  if ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0) {
    const int64_t packs = count / kSize;
    for (int64_t p = thread; p < packs; p += threads) {
      Pack<T> pack = load_pack(from + p * kSize);
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        pack.at[j] = static_cast<T>(body(widen(pack.at[j]), p * kSize + j));
      store_pack(to + p * kSize, pack);
    }
    done = packs * kSize;
  }
  for (int64_t i = done + thread; i < count; i += threads)
    to[i] = static_cast<T>(body(widen(from[i]), i));
}

}  // namespace pl::cuda
