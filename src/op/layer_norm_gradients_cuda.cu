// CUDA kernel of layer_norm_gradients: all of them in one pass over x and dy. The sums may be added
// to running ones.
#include "op/cuda/kernels.h"
#include "op/cuda/norm_rows-inl.cuh"
#include "op/cuda/product.h"

#include <cuda_pipeline.h>

namespace pl::cuda {
namespace {

// All gradients: dx as layer_norm_gradient has it, with `added` where it is not null, and the sums
// over rows, of which each block writes its share: parts (blocks, 2, features), or with `total`
// that of dx as a third. Warps of a block join theirs in order. One block has a processor to
// itself. Lanes' registers are for the sums; rows are asked for two ahead of the work into a ring
// in shared memory, in which a lane reads only what it asked for itself, so that nobody waits for
// others.
constexpr int kMostWithTotal = 24;  // numbers of a lane
constexpr int kMostWarps = 16;
constexpr int kRing = 2;  // rows of a warp
template <class T, int kPacks>
struct NormRing {
  Pack<T> at[kRing][3][kPacks][32];  // x, dy, added
};
// Behind the last row a warp's sums lie on its ring, to be joined with the others'.
template <class T, int kPacks>
struct NormSums {
  WideInLanes<T, kPacks> of[3];
  static_assert(sizeof of <= sizeof(NormRing<T, kPacks>));
};

// The sums of all warps, in the order of warps.
template <class T, int kPacks, int kSums>
__device__ void join_norm_sums(const NormRows& f, char* rings, int warp,
                               const RowInLanes<T, kPacks> (&sums)[kSums], int sums_made,
                               Wide<T>* parts) {
  using W = Wide<T>;
  using Sums = WideInLanes<T, kPacks>;
  constexpr int kPitch = static_cast<int>(sizeof(NormRing<T, kPacks>) / sizeof(W));
  W* shared = reinterpret_cast<W*>(rings);  // (warps, kPitch)
  auto& own = *reinterpret_cast<NormSums<T, kPacks>*>(shared + warp * kPitch);
  __syncwarp();  // other lanes have read their rows
#pragma unroll
  for (int k = 0; k < kSums; ++k)
#pragma unroll
    for (int p = 0; p < kPacks; ++p) own.of[k].put(p, sums[k].at[p]);
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int i = static_cast<int>(threadIdx.x); i < sums_made * Sums::kNumbers; i += blockDim.x) {
    W of_warp[kMostWarps];
#pragma unroll
    for (int w = 0; w < kMostWarps; ++w) of_warp[w] = w < warps ? shared[w * kPitch + i] : W(0);
    W joined = of_warp[0];
#pragma unroll
    for (int w = 1; w < kMostWarps; ++w)
      if (w < warps) joined += of_warp[w];
    const int column = Sums::column(i % Sums::kNumbers);
    if (column < f.features)
      parts[(blockIdx.x * int64_t{sums_made} + i / Sums::kNumbers) * f.features + column] = joined;
  }
}

template <class T, int kPacks>
__global__ void __launch_bounds__(kMostWarps * 32, 1)
    norm_all_gradients(NormRows f, const T* x, const Wide<T>* gamma, const Wide<T>* mean,
                       const Wide<T>* rstd, const T* dy, const T* added, T* dx, bool total,
                       Wide<T>* parts) {
  using W = Wide<T>;
  using Row = RowInLanes<T, kPacks>;
  constexpr int kSums = kPacks * Row::kSize <= kMostWithTotal ? 3 : 2;
  const int sums_made = total && kSums == 3 ? 3 : 2;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  extern __shared__ __align__(16) char rings[];
  NormRing<T, kPacks>& ring = reinterpret_cast<NormRing<T, kPacks>*>(rings)[warp];
  __shared__ WideInLanes<T, kPacks> scale;
  const W share = W(1) / static_cast<W>(f.features);
  Row sums[kSums];
#pragma unroll
  for (int k = 0; k < kSums; ++k)
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) sums[k].at[p][j] = W(0);
  auto ask = [&](int64_t r, int place) {
    if (r >= 0)
      Row::each_pack(f.features, [&](int p, int64_t column) {
        const int64_t at = r * f.features + column;
        __pipeline_memcpy_async(&ring.at[place][0][p][lane], x + at, 16);
        __pipeline_memcpy_async(&ring.at[place][1][p][lane], dy + at, 16);
        if (added) __pipeline_memcpy_async(&ring.at[place][2][p][lane], added + at, 16);
      });
    __pipeline_commit();
  };
  int64_t r = f.rows - 1 - warp_index();
  W averages[kRing], inverses[kRing];  // of the rows in the ring, this one's first
  auto ask_moments = [&](int64_t row, int i) {
    averages[i] = row >= 0 ? mean[row] : W(0);
    inverses[i] = row >= 0 ? rstd[row] : W(0);
  };
#pragma unroll
  for (int place = 0; place < kRing - 1; ++place) {
    ask(r - place * warp_count(), place);
    ask_moments(r - place * warp_count(), place);
  }
  scale.fill(gamma, f.features);
  __syncthreads();
  for (int place = 0; r >= 0; r -= warp_count(), place = (place + 1) % kRing) {
    const int64_t next = r - (kRing - 1) * warp_count();
    ask(next, (place + kRing - 1) % kRing);
    ask_moments(next, kRing - 1);
    const W average = averages[0], inverse = inverses[0];
    __pipeline_wait_prior(kRing - 1);
    const auto& row = ring.at[place];
    W sum = 0, dot = 0;
    Row::each_pack(f.features, [&](int p, int64_t) {
      const Pack<T> v = row[0][p][lane], g = row[1][p][lane];
      W factor[Row::kSize];
      scale.get(p, factor);
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        const W n = (widen(v.at[j]) - average) * inverse, d = widen(g.at[j]);
        sums[0].at[p][j] += d * n;
        sums[1].at[p][j] += d;
        const W scaled = d * factor[j];
        sum += scaled;
        dot += scaled * n;
      }
    });
    const W flat = warp_all(sum, Plus{}) * share, slope = warp_all(dot, Plus{}) * share;
    Row::each_pack(f.features, [&](int p, int64_t column) {
      const Pack<T> v = row[0][p][lane], g = row[1][p][lane];
      W d[Row::kSize], factor[Row::kSize];
      scale.get(p, factor);
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        const W n = (widen(v.at[j]) - average) * inverse;
        d[j] = inverse * (widen(g.at[j]) * factor[j] - flat - n * slope);
      }
      if (added) {
        const Pack<T> more = row[2][p][lane];
#pragma unroll
        for (int j = 0; j < Row::kSize; ++j) d[j] += widen(more.at[j]);
      }
      if constexpr (kSums == 3)
#pragma unroll
        for (int j = 0; j < Row::kSize; ++j) sums[2].at[p][j] += d[j];
      store_narrow<Row::kSize>(dx + r * f.features + column, d);
    });
#pragma unroll
    for (int i = 0; i + 1 < kRing; ++i) {
      averages[i] = averages[i + 1];
      inverses[i] = inverses[i + 1];
    }
  }
  join_norm_sums<T, kPacks>(f, rings, warp, sums, sums_made, parts);
}

// Where the sums go: dgamma, dbeta, that of dx.
template <class W>
struct NormSumsEnd {
  SumEnd<W> ends[3];
  int64_t features;
  __device__ SumEnd<W> of(int64_t column) const {
    return column < features ? ends[0] : column < 2 * features ? ends[1] : ends[2];
  }
  __device__ void ahead(int64_t, int64_t column) const { of(column).ahead(column % features); }
  __device__ void operator()(int64_t, int64_t column, const double (&sums)[1]) const {
    of(column)(column % features, static_cast<W>(sums[0]));
  }
};

// How a call is cut: blocks of `warps`, and what they leave to column_ends.
struct NormPlan {
  NormRows rows;
  int packs, warps = 0, shared_bytes = 0;
  int first;  // operands in front of x: running sums, or none
  bool adds, total;
  bool apart;            // the total is made behind dx: lanes have no room for it
  ColumnPlan ends = {};  // (blocks, sums x features)
  int sums() const { return total && !apart ? 3 : 2; }
};

template <class F>
void with_norm_packs(int packs, F body) {
  with_packs(packs, [&]<int kPacks>() {
    if constexpr (kPacks <= 4) body.template operator()<kPacks>();
  });
}

// As many warps as their rings have room for on this device.
template <class T>
void choose_warps(const CudaBackend& backend, NormPlan& plan) {
  with_norm_packs(plan.packs, [&]<int kPacks>() {
    const int64_t room =
        shared_room(backend, reinterpret_cast<const void*>(norm_all_gradients<T, kPacks>));
    constexpr auto kRingBytes = static_cast<int>(sizeof(NormRing<T, kPacks>));
    plan.warps = std::min(kMostWarps, static_cast<int>(room / kRingBytes));
    plan.shared_bytes = plan.warps * kRingBytes;
  });
}

template <class T>
void launch_gradients(const Launch& launch, const NormPlan& plan, void* const* in, void* const* out,
                      char* workspace) {
  using W = Wide<T>;
  W* parts = reinterpret_cast<W*>(workspace);
  void* const* x = in + plan.first;
  const auto blocks = static_cast<unsigned>(plan.ends.pieces);
  const unsigned threads = static_cast<unsigned>(plan.warps) * 32;
  with_norm_packs(plan.packs, [&]<int kPacks>() {
    norm_all_gradients<T, kPacks>
        <<<blocks, threads, static_cast<size_t>(plan.shared_bytes), launch.stream>>>(
            plan.rows, input<T>(x, 0), input<W>(x, 1), input<W>(x, 2), input<W>(x, 3),
            input<T>(x, 4), plan.adds ? input<T>(x, 5) : nullptr, output<T>(out, 0), plan.total,
            parts);
  });
  const dim3 grid(static_cast<unsigned>((plan.ends.columns + 31) / 32)), block(32, 32);
  auto end = [&](int s) {
    return SumEnd<W>{output<W>(out, 1 + s), plan.first > 0 ? input<W>(in, s) : nullptr};
  };
  column_ends<1, W><<<grid, block, 0, launch.stream>>>(
      plan.ends, parts,
      NormSumsEnd<W>{{end(0), end(1), plan.sums() == 3 ? end(2) : end(1)}, plan.rows.features});
}

// [Running sums,] x, gamma, mean, rstd, dy, [added]; `first`: the place of x. Rows that lanes do
// not hold are left to the kernels of the parts, as are running sums of three where they hold only
// two.
std::unique_ptr<Kernel> gradients_kernel(const PrepareCall& call, int first) {
  CudaBackend& backend = backend_of(call);
  const Meta& x = call.in[static_cast<size_t>(first)];
  const Dim features = x.shape.back();
  const NormRows f{x.elements() / features, features};
  const Dtype dtype = x.dtype;
  return dispatch_real(dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    const int packs = packs_of_lane<T>(f.features), numbers = packs * Pack<T>::kSize;
    const bool apart = numbers > kMostWithTotal;
    if (packs == 0 || packs > 4 || f.rows == 0 || (first > 0 && apart)) return nullptr;
    NormPlan plan{.rows = f,
                  .packs = packs,
                  .first = first,
                  .adds = call.in.size() > static_cast<size_t>(first) + 5,
                  .total = call.out.size() > 3,
                  .apart = apart,
                  .ends = {.rows = f.rows}};
    plan.ends.columns = plan.sums() * f.features;
    choose_warps<T>(backend, plan);
    if (plan.warps == 0) return nullptr;
    plan.ends.pieces =
        std::min<int64_t>((f.rows + plan.warps - 1) / plan.warps, backend.multiprocessors());
    Bytes bytes = plan.ends.bytes(1, sizeof(Wide<T>));
    const bool behind = plan.total && plan.apart;
    if (behind) bytes = std::max(bytes, bias_gradient_bytes(backend, dtype, f.rows, f.features));
    return make_kernel(
        call,
        [=, &backend](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          launch_gradients<T>(launch, plan, in, out, workspace);
          if (behind)
            launch_bias_gradient(backend, dtype, out[0], out[3], f.rows, f.features, false,
                                 workspace);
        },
        bytes);
  });
}

}  // namespace

std::unique_ptr<Kernel> layer_norm_gradients(const PrepareCall& call) {
  return gradients_kernel(call, 0);
}
std::unique_ptr<Kernel> layer_norm_gradients_accumulate(const PrepareCall& call) {
  return gradients_kernel(call, 3);
}

}  // namespace pl::cuda
