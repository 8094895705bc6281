// CUDA kernels of embedding, gather and their gradients. A gradient sorts the places of indices by
// what they pick (stable, by digits of eight bits), then sums those of each row in that order: no
// atomics on floats, the same bits each time.
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/cuda/sort-inl.cuh"
#include "op/gather.h"

namespace pl::cuda {
namespace {

// The place that an index names; at least `size`, as an unsigned number, where it is outside.
__device__ inline uint64_t picked_place(int64_t index, const GatherForm& f) {
  return static_cast<uint64_t>(index < 0 && f.from_end ? index + f.size : index);
}
__device__ inline bool is_picked(uint64_t place, const GatherForm& f) {
  return place < static_cast<uint64_t>(f.size);
}

template <class T, class I>
__global__ void gather_rows(const T* x, const I* indices, T* y, T outside, GatherForm f,
                            bool packs) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t units = packs ? f.inner / kSize : f.inner;
  for (int64_t i = thread_index(); i < f.outer * f.count * units; i += thread_count()) {
    const int64_t row = i / units, at = i % units, o = f.outer == 1 ? 0 : row / f.count;
    const uint64_t place = picked_place(indices[row - o * f.count], f);
    const bool known = is_picked(place, f);
    const T* from = x + (o * f.size + (known ? static_cast<int64_t>(place) : 0)) * f.inner;
    if (packs) {
      Pack<T> pack;
      if (known) pack = load_pack(from + at * kSize);
      if (!known)
#pragma unroll
        for (int j = 0; j < kSize; ++j) pack.at[j] = outside;
      store_pack(y + i * kSize, pack);
    } else {
      y[i] = known ? from[at] : outside;
    }
  }
}

template <class T, class I>
__global__ void gather_elements(const T* x, const I* indices, T* y, T outside, GatherForm f) {
  for (int64_t e = thread_index(); e < f.outer * f.count * f.inner; e += thread_count()) {
    const int64_t o = e / (f.count * f.inner), column = e % f.inner;
    const uint64_t place = picked_place(indices[e], f);
    y[e] = is_picked(place, f) ? x[(o * f.size + static_cast<int64_t>(place)) * f.inner + column]
                            : outside;
  }
}

// Keys are rows of x, or its elements where there is an index for each; those of indices outside
// come last, as `depth`.
template <class I>
__global__ void pick_keys(const I* indices, uint32_t* keys, uint32_t* places, int64_t count,
                          int64_t depth, GatherForm f) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t row = f.each ? i / f.inner : i, o = f.outer == 1 ? 0 : row / f.count;
    const uint64_t place = picked_place(indices[f.each ? i : row - o * f.count], f);
    int64_t key = depth;
    if (is_picked(place, f)) {
      key = o * f.size + static_cast<int64_t>(place);
      if (f.each) key = key * f.inner + i % f.inner;
    }
    keys[i] = static_cast<uint32_t>(key);
    places[i] = static_cast<uint32_t>(i);
  }
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

// A gradient's indices pick rows of `width` among `depth`.
struct EmbeddingForm {
  explicit EmbeddingForm(const GatherForm& f)
      : count(f.outer * f.count * (f.each ? f.inner : 1)),
        depth(f.outer * f.size * (f.each ? f.inner : 1)),
        width(f.each ? 1 : f.inner) {}
  int64_t count, depth, width;
  int64_t pieces() const { return (count + kPieceRows - 1) / kPieceRows; }
  // uint32 elements: what sorting takes, and firsts.
  int64_t words() const { return SortSpace::words(count) + depth + 1; }
};

// The last two operands are indices and dy.
template <class In, class Out>
std::unique_ptr<Kernel> embedding_gradient_kernel(const PrepareCall& call, const GatherForm& g) {
  const size_t i = call.in.size() - 2;
  const EmbeddingForm f(g);
  const bool wide_indices = call.in[i].dtype == Dtype::int64;
  if (f.count >= int64_t{1} << 32 || f.depth >= int64_t{1} << 31) return nullptr;
  const Bytes parts_at = align_up(f.words() * static_cast<Bytes>(sizeof(uint32_t)), 256);
  return make_kernel(
      call,
      [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
        if (f.depth * f.width == 0) return;
        SortSpace space(workspace, f.count);
        auto* first = reinterpret_cast<uint32_t*>(workspace) + SortSpace::words(f.count);
        auto make_keys = [&](const auto* indices) {
          pick_keys<<<launch.blocks(f.count, 256), 256, 0, launch.stream>>>(
              indices, space.keys, space.places, f.count, f.depth, g);
        };
        if (f.count > 0 && wide_indices) make_keys(input<int64_t>(in, static_cast<int>(i)));
        if (f.count > 0 && !wide_indices) make_keys(input<int32_t>(in, static_cast<int>(i)));
        space.sort(launch, digits_of(f.depth));
        find_firsts<<<launch.blocks(f.depth + 1, 256), 256, 0, launch.stream>>>(
            space.keys, first, f.count, f.depth);
        const EmbeddingSums<In, Out> sums{
            .keys = space.keys,
            .first = first,
            .places = space.places,
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

template <class T, class I>
std::unique_ptr<Kernel> gather_kernel(const PrepareCall& call, const GatherForm& f) {
  const T outside = static_cast<T>(outside_bits(call.in[0].dtype, f.zeros));
  const int64_t total = f.outer * f.count * f.inner;
  const bool packs =
      f.inner % Pack<T>::kSize == 0 &&
      (f.inner == call.in[0].shape.back() || call.alignment() == kFullAlignment);
  const int64_t units = packs ? total / Pack<T>::kSize : total;
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (total == 0) return;
    if (f.each)
      gather_elements<T, I><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
          input<T>(in, 0), input<I>(in, 1), output<T>(out, 0), outside, f);
    else
      gather_rows<T, I><<<launch.blocks(units, 256), 256, 0, launch.stream>>>(
          input<T>(in, 0), input<I>(in, 1), output<T>(out, 0), outside, f, packs);
  });
}

std::unique_ptr<Kernel> gather_of(const PrepareCall& call, const GatherForm& f) {
  return dispatch_size(call.in[0].dtype, [&]<class T>() {
    return call.in[1].dtype == Dtype::int64 ? gather_kernel<T, int64_t>(call, f)
                                            : gather_kernel<T, int32_t>(call, f);
  });
}

std::unique_ptr<Kernel> gradient_of(const PrepareCall& call, const GatherForm& f) {
  const Dtype from = call.in.back().dtype, to = call.out[0].dtype;
  if (from == Dtype::bfloat16 && to == Dtype::float32)
    return embedding_gradient_kernel<Bf16, float>(call, f);
  if (from == Dtype::float16 && to == Dtype::float32)
    return embedding_gradient_kernel<Half, float>(call, f);
  if (from != to) return nullptr;
  return dispatch_real(from, [&]<class T>() { return embedding_gradient_kernel<T, T>(call, f); });
}

}  // namespace

std::unique_ptr<Kernel> embedding(const PrepareCall& call) {
  const Shape& table = call.in[0].shape;
  return gather_of(
      call, {.size = table[0], .count = call.in[1].elements(), .inner = table[1]});
}

std::unique_ptr<Kernel> embedding_gradient(const PrepareCall& call) {
  const Shape& table = call.out[0].shape;
  const Dim count = call.in[call.in.size() - 2].elements();
  return gradient_of(call, {.size = table[0], .count = count, .inner = table[1]});
}

std::unique_ptr<Kernel> gather(const PrepareCall& call) {
  return gather_of(call, gather_form(call.in, call.out, call.attrs, false));
}

std::unique_ptr<Kernel> gather_gradient(const PrepareCall& call) {
  return gradient_of(call, gather_form(call.in, call.out, call.attrs, true));
}

}  // namespace pl::cuda
