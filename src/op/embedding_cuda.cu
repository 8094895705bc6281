// CUDA kernels of embedding and its gradient. The gradient sorts the places of indices by row
// (stable, by digits of eight bits), then sums each row's places in that order: no atomics on
// floats, the same bits each time.
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

template <class T>
__global__ void gather_rows(const T* table, const int32_t* indices, T* y, int64_t count,
                            int64_t depth, int64_t width) {
  const T nan = static_cast<T>(nan_of(Wide<T>(0)));
  constexpr int kSize = Pack<T>::kSize;
  const bool packs = width % kSize == 0;
  const int64_t units = packs ? width / kSize : width;
  for (int64_t i = thread_index(); i < count * units; i += thread_count()) {
    const int64_t row = indices[i / units], at = i % units;
    const bool known = row >= 0 && row < depth;
    if (packs) {
      Pack<T> pack;
      if (known) pack = load_pack(table + row * width + at * kSize);
      if (!known)
#pragma unroll
        for (int j = 0; j < kSize; ++j) pack.at[j] = nan;
      store_pack(y + i * kSize, pack);
    } else {
      y[i] = known ? table[row * width + at] : nan;
    }
  }
}

constexpr int kSortThreads = 1024, kSortWarps = kSortThreads / 32;
constexpr int kDigits = 256;

// Keys are rows; those of indices that have none come last, as row `depth`.
__global__ void sort_keys(const int32_t* indices, uint32_t* keys, uint32_t* places, int64_t count,
                          int64_t depth) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t row = indices[i];
    keys[i] = static_cast<uint32_t>(row >= 0 && row < depth ? row : depth);
    places[i] = static_cast<uint32_t>(i);
  }
}

// How many of a chunk's keys have each digit: counts (digits, chunks).
__global__ void __launch_bounds__(kSortThreads)
    count_digits(const uint32_t* keys, uint32_t* counts, int64_t count, int shift) {
  __shared__ uint32_t shared[kDigits];
  if (threadIdx.x < kDigits) shared[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  if (i < count) atomicAdd(&shared[(keys[i] >> shift) & (kDigits - 1)], 1u);
  __syncthreads();
  if (threadIdx.x < kDigits) counts[threadIdx.x * gridDim.x + blockIdx.x] = shared[threadIdx.x];
}

// counts[i] becomes the sum of those before it; one block.
__global__ void __launch_bounds__(1024) sum_before(uint32_t* counts, int64_t total) {
  __shared__ uint32_t warps[32];
  __shared__ uint32_t before;
  if (threadIdx.x == 0) before = 0;
  for (int64_t first = 0; first < total; first += 1024) {
    const int64_t i = first + threadIdx.x;
    const uint32_t own = i < total ? counts[i] : 0;
    uint32_t sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
      if (threadIdx.x % 32 >= static_cast<unsigned>(step)) sum += other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    uint32_t start = before;
    for (unsigned w = 0; w < threadIdx.x / 32; ++w) start += warps[w];
    if (i < total) counts[i] = start + sum - own;
    __syncthreads();
    if (threadIdx.x == 1023) before = start + sum;
  }
}

// Each key to its place: those with smaller digits, those of earlier chunks, those before it here.
__global__ void __launch_bounds__(kSortThreads)
    place_keys(const uint32_t* keys, const uint32_t* places, const uint32_t* starts,
               uint32_t* sorted_keys, uint32_t* sorted_places, int64_t count, int shift) {
  __shared__ uint16_t of_warp[kSortWarps][kDigits];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int k = static_cast<int>(threadIdx.x); k < kSortWarps * kDigits; k += kSortThreads)
    (&of_warp[0][0])[k] = 0;
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  const bool exists = i < count;
  const uint32_t key = exists ? keys[i] : 0;
  // Lanes without a key have a digit that no other has.
  const uint32_t digit = exists ? (key >> shift) & (kDigits - 1) : kDigits;
  const uint32_t same = __match_any_sync(0xffffffffu, digit);
  const uint32_t lane = threadIdx.x % 32, earlier = same & ((1u << lane) - 1);
  if (exists && earlier == 0) of_warp[warp][digit] = static_cast<uint16_t>(__popc(same));
  __syncthreads();
  if (!exists) return;
  uint32_t at = starts[digit * gridDim.x + blockIdx.x] + __popc(earlier);
  for (int w = 0; w < warp; ++w) at += of_warp[w][digit];
  sorted_keys[at] = key;
  sorted_places[at] = places[i];
}

// first[v]: how many sorted keys are below v, for v in [0, depth].
__global__ void find_firsts(const uint32_t* keys, uint32_t* first, int64_t count, int64_t depth) {
  for (int64_t v = thread_index(); v <= depth; v += thread_count()) {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < v)
        low = middle + 1;
      else
        high = middle;
    }
    first[v] = static_cast<uint32_t>(low);
  }
}

// Sorted places that a block sums. A row whose places lie in several pieces has a part in each:
// one that ends in the piece or goes through it (kHead), or one that begins there (kTail).
constexpr int kPieceRows = 64;
enum : int { kHead = 0, kTail = 1 };

template <class In, class Out>
struct EmbeddingSums {
  const uint32_t *keys, *first, *places;
  const In* dy;
  const Out* onto;  // may be null, or `out`
  Out* out;
  Wide<In>* parts;  // (pieces, 2, width)
  int64_t count, depth, width;

  template <int N>
  __device__ void finish(int64_t row, int64_t column, Wide<In> (&sum)[N]) const {
    const int64_t at = row * width + column;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (onto) sum[j] = static_cast<Wide<In>>(widen(onto[at + j])) + sum[j];
      out[at + j] = static_cast<Out>(static_cast<Wide<Out>>(sum[j]));
    }
  }
};

// Columns [column, column + N) of a block's piece.
template <int N, class In, class Out>
__device__ void sum_columns_of_piece(const EmbeddingSums<In, Out>& s, int64_t column) {
  using A = Wide<In>;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPieceRows;
  const int64_t end = min(begin + kPieceRows, s.count);
  A sum[N] = {};
#pragma unroll 4
  for (int64_t p = begin; p < end; ++p) {
    const uint32_t key = s.keys[p];
    if (key >= s.depth) return;  // indices of no row come last
    A values[N];
    load_wide<N>(s.dy + s.places[p] * s.width + column, values);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += values[j];
    if (p + 1 < end && s.keys[p + 1] == key) continue;
    const bool before = s.first[key]<begin, behind = s.first[key + 1]> end;
    if (before || behind) {
      A* part = s.parts + (blockIdx.x * 2 + (before ? kHead : kTail)) * s.width + column;
#pragma unroll
      for (int j = 0; j < N; ++j) part[j] = sum[j];
    } else {
      s.template finish<N>(key, column, sum);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = A(0);
  }
}

template <int N, class In, class Out>
__global__ void __launch_bounds__(128) sum_pieces(EmbeddingSums<In, Out> s) {
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.x * N;
  for (int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
       column < s.width; column += step)
    sum_columns_of_piece<N>(s, column);
}

// Rows that begin in a piece and go on behind it: their parts, in order.
template <class In, class Out>
__global__ void __launch_bounds__(128) join_pieces(EmbeddingSums<In, Out> s) {
  const int64_t end = (static_cast<int64_t>(blockIdx.x) + 1) * kPieceRows;
  const uint32_t key = s.keys[end - 1];
  if (key >= s.depth || s.first[key] < end - kPieceRows || s.first[key + 1] <= end) return;
  const int64_t last = (static_cast<int64_t>(s.first[key + 1]) - 1) / kPieceRows;
  for (int64_t column = threadIdx.x; column < s.width; column += blockDim.x) {
    Wide<In> sum[1] = {s.parts[(blockIdx.x * 2 + kTail) * s.width + column]};
#pragma unroll 8
    for (int64_t piece = blockIdx.x + 1; piece <= last; ++piece)
      sum[0] += s.parts[(piece * 2 + kHead) * s.width + column];
    s.template finish<1>(key, column, sum);
  }
}

// Rows that no index picked.
template <class In, class Out>
__global__ void fill_unpicked(EmbeddingSums<In, Out> s) {
  if (s.onto == s.out) return;
  for (int64_t i = thread_index(); i < s.depth * s.width; i += thread_count()) {
    const int64_t row = i / s.width;
    if (s.first[row] == s.first[row + 1])
      s.out[i] = s.onto ? s.onto[i] : static_cast<Out>(Wide<Out>(0));
  }
}

struct EmbeddingForm {
  int64_t count, depth, width;
  int64_t chunks() const { return (count + kSortThreads - 1) / kSortThreads; }
  int passes() const {
    int bits = 1;
    while (bits < 32 && (int64_t{1} << bits) <= depth) ++bits;
    return (bits + 7) / 8;
  }
  int64_t pieces() const { return (count + kPieceRows - 1) / kPieceRows; }
  // uint32 elements: two lists of keys and places, counts, firsts.
  int64_t words() const { return 4 * count + kDigits * chunks() + depth + 1; }
};

template <class In, class Out>
std::unique_ptr<Kernel> embedding_gradient_kernel(const PrepareCall& call) {
  const size_t i = call.in.size() - 2;
  const EmbeddingForm f{call.in[i].elements(), call.out[0].shape[0], call.out[0].shape[1]};
  if (f.count >= int64_t{1} << 32 || f.depth >= int64_t{1} << 31) return nullptr;
  const Bytes parts_at = align_up(f.words() * static_cast<Bytes>(sizeof(uint32_t)), 256);
  return make_kernel(
      call,
      [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
        if (f.depth * f.width == 0) return;
        auto* keys = reinterpret_cast<uint32_t*>(workspace);
        uint32_t *places = keys + f.count, *other_keys = places + f.count;
        uint32_t *other_places = other_keys + f.count, *counts = other_places + f.count;
        uint32_t* first = counts + kDigits * f.chunks();
        const auto chunks = static_cast<unsigned>(f.chunks());
        if (f.count > 0) {
          sort_keys<<<launch.blocks(f.count, 256), 256, 0, launch.stream>>>(
              input<int32_t>(in, static_cast<int>(i)), keys, places, f.count, f.depth);
          for (int pass = 0; pass < f.passes(); ++pass) {
            count_digits<<<chunks, kSortThreads, 0, launch.stream>>>(keys, counts, f.count,
                                                                     8 * pass);
            sum_before<<<1, 1024, 0, launch.stream>>>(counts, kDigits * f.chunks());
            place_keys<<<chunks, kSortThreads, 0, launch.stream>>>(keys, places, counts, other_keys,
                                                                   other_places, f.count, 8 * pass);
            std::swap(keys, other_keys);
            std::swap(places, other_places);
          }
        }
        find_firsts<<<launch.blocks(f.depth + 1, 256), 256, 0, launch.stream>>>(keys, first,
                                                                                f.count, f.depth);
        const EmbeddingSums<In, Out> sums{
            .keys = keys,
            .first = first,
            .places = places,
            .dy = input<In>(in, static_cast<int>(i) + 1),
            .onto = i == 1 ? input<Out>(in, 0) : nullptr,
            .out = output<Out>(out, 0),
            .parts = reinterpret_cast<Wide<In>*>(workspace + parts_at),
            .count = f.count,
            .depth = f.depth,
            .width = f.width};
        fill_unpicked<<<launch.blocks(f.depth * f.width, 256), 256, 0, launch.stream>>>(sums);
        if (f.count == 0) return;
        constexpr int kSize = Pack<In>::kSize;
        const bool packs = f.width % kSize == 0;
        const int64_t units = packs ? f.width / kSize : f.width;
        const dim3 grid(static_cast<unsigned>(f.pieces()), grid_down((units + 127) / 128));
        if (packs)
          sum_pieces<kSize><<<grid, 128, 0, launch.stream>>>(sums);
        else
          sum_pieces<1><<<grid, 128, 0, launch.stream>>>(sums);
        if (f.pieces() > 1)
          join_pieces<<<static_cast<unsigned>(f.pieces() - 1), 128, 0, launch.stream>>>(sums);
      },
      parts_at + f.pieces() * 2 * f.width * static_cast<Bytes>(sizeof(Wide<In>)));
}

}  // namespace

std::unique_ptr<Kernel> embedding(const PrepareCall& call) {
  const EmbeddingForm f{call.in[1].elements(), call.in[0].shape[0], call.in[0].shape[1]};
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (f.count * f.width > 0)
        gather_rows<T>
            <<<launch.blocks(f.count * f.width / Pack<T>::kSize + 1, 256), 256, 0, launch.stream>>>(
                input<T>(in, 0), input<int32_t>(in, 1), output<T>(out, 0), f.count, f.depth,
                f.width);
    });
  });
}

std::unique_ptr<Kernel> embedding_gradient(const PrepareCall& call) {
  const Dtype from = call.in.back().dtype, to = call.out[0].dtype;
  if (from == Dtype::bfloat16 && to == Dtype::float32)
    return embedding_gradient_kernel<Bf16, float>(call);
  if (from == Dtype::float16 && to == Dtype::float32)
    return embedding_gradient_kernel<Half, float>(call);
  if (from != to) return nullptr;
  return dispatch_real(from, [&]<class T>() { return embedding_gradient_kernel<T, T>(call); });
}

}  // namespace pl::cuda
