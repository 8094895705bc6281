// CUDA kernel of layer_norm_gradients: all of them in one pass over x and dy.
#include "op/cuda/kernels.h"
#include "op/cuda/norm_rows-inl.cuh"
#include "op/cuda/product.h"

namespace pl::cuda {
namespace {

// All gradients: dx as layer_norm_gradient has it, with `added` where it is not null, and the sums over rows, of which
// each block writes its share: parts (blocks, 2, features), or with `total` that of dx as a third.
// Warps of a block join theirs in order.
// One block has a processor to itself, with as many warps as find room for a row, its sums and the
// row after it, which is asked for early.
constexpr int kMostWithTotal = 24;  // numbers of a lane
constexpr int norm_warps(int numbers_of_lane) { return numbers_of_lane > 8 ? 8 : 16; }
template <class T, int kPacks, int kWarps = norm_warps(kPacks * Pack<T>::kSize)>
__global__ void __launch_bounds__(kWarps * 32, 1)
    norm_all_gradients(NormRows f, const T* x, const Wide<T>* gamma, const Wide<T>* mean,
                       const Wide<T>* rstd, const T* dy, const T* added, T* dx, bool total,
                       Wide<T>* parts) {
  using W = Wide<T>;
  using Row = RowInLanes<T, kPacks>;
  constexpr int kSums = kPacks * Row::kSize <= kMostWithTotal ? 3 : 2;
  const int sums_made = total && kSums == 3 ? 3 : 2;
  __shared__ W scale[kPacks * 32 * Row::kSize];
  __shared__ W shared[kWarps][32 * Row::kSize + 1];
  for (int64_t i = threadIdx.x; i < f.features; i += kWarps * 32) scale[i] = gamma[i];
  __syncthreads();
  const W share = W(1) / static_cast<W>(f.features);
  Row sums[kSums];
#pragma unroll
  for (int k = 0; k < kSums; ++k)
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) sums[k].at[p][j] = W(0);
  struct Operands {
    Pack<T> x[kPacks], dy[kPacks], added[kPacks];
    W mean, rstd;
  } next;
  auto ask = [&](int64_t r) {
    if (r < 0) return;
    Row::each_pack(f.features, [&](int p, int64_t column) {
      const int64_t at = r * f.features + column;
      next.x[p] = load_pack(x + at);
      next.dy[p] = load_pack(dy + at);
      if (added) next.added[p] = load_pack(added + at);
    });
    next.mean = mean[r];
    next.rstd = rstd[r];
  };
  ask(f.rows - 1 - warp_index());
  for (int64_t r = f.rows - 1 - warp_index(); r >= 0; r -= warp_count()) {
    const Operands now = next;  // as it lies: to widen twice costs less than what it would hold
    ask(r - warp_count());
    W sum = 0, dot = 0;
    Row::each_pack(f.features, [&](int p, int64_t column) {
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        const W n = (widen(now.x[p].at[j]) - now.mean) * now.rstd, d = widen(now.dy[p].at[j]);
        sums[0].at[p][j] += d * n;
        sums[1].at[p][j] += d;
        const W g = d * scale[column + j];
        sum += g;
        dot += g * n;
      }
    });
    const W flat = warp_all(sum, Plus{}) * share, slope = warp_all(dot, Plus{}) * share;
    Row::each_pack(f.features, [&](int p, int64_t column) {
      W d[Row::kSize];
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j) {
        const W n = (widen(now.x[p].at[j]) - now.mean) * now.rstd;
        d[j] = now.rstd * (widen(now.dy[p].at[j]) * scale[column + j] - flat - n * slope);
        if (added) d[j] += widen(now.added[p].at[j]);
        if constexpr (kSums == 3) sums[2].at[p][j] += d[j];
      }
      store_narrow<Row::kSize>(dx + r * f.features + column, d);
    });
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < kSums; ++k)
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (k >= sums_made) continue;
      __syncthreads();
#pragma unroll
      for (int j = 0; j < Row::kSize; ++j)
        shared[warp][j * 32 + lane] = sums[k].at[p][j];
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < 32 * Row::kSize; i += kWarps * 32) {
        const int64_t column = p * 32 * Row::kSize + i;
        const int at = i % Row::kSize * 32 + i / Row::kSize;
        W joined = shared[0][at];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) joined += shared[w][at];
        if (column < f.features)
          parts[(blockIdx.x * int64_t{sums_made} + k) * f.features + column] = joined;
      }
    }
}

// How a call is cut: blocks of `warps`, and what they leave to column_ends.
struct NormPlan {
  NormRows rows;
  int packs, warps;
  bool adds, total;
  bool apart;  // the total is made behind dx: lanes have no room for it
  ColumnPlan ends = {};
  int sums() const { return total && !apart ? 3 : 2; }
};

template <class T>
void launch_gradients(const Launch& launch, const NormPlan& plan, void* const* in, void* const* out,
                      char* workspace) {
  using W = Wide<T>;
  W* parts = reinterpret_cast<W*>(workspace);
  const auto blocks = static_cast<unsigned>(plan.ends.pieces);
  const unsigned threads = static_cast<unsigned>(plan.warps) * 32;
  with_packs(plan.packs, [&]<int kPacks>() {
    if constexpr (kPacks <= 4)
      norm_all_gradients<T, kPacks><<<blocks, threads, 0, launch.stream>>>(
          plan.rows, input<T>(in, 0), input<W>(in, 1), input<W>(in, 2), input<W>(in, 3),
          input<T>(in, 4), plan.adds ? input<T>(in, 5) : nullptr, output<T>(out, 0), plan.total,
          parts);
  });
  const dim3 grid(static_cast<unsigned>((plan.rows.features + 31) / 32)), block(32, 32);
  NormParameterEnd<W> end{output<W>(out, 1), output<W>(out, 2)};
  if (plan.sums() == 3) {
    end.total = output<W>(out, 3);
    column_ends<3, W><<<grid, block, 0, launch.stream>>>(plan.ends, parts, end);
  } else {
    column_ends<2, W><<<grid, block, 0, launch.stream>>>(plan.ends, parts, end);
  }
}

}  // namespace

// Rows that lanes do not hold are left to the kernels of the parts.
std::unique_ptr<Kernel> layer_norm_gradients(const PrepareCall& call) {
  const NormRows f = norm_rows(call);
  CudaBackend& backend = backend_of(call);
  const Dtype dtype = call.in[0].dtype;
  return dispatch_real(dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    const int packs = packs_of_lane<T>(f.features), numbers = packs * Pack<T>::kSize;
    if (packs == 0 || packs > 4 || f.rows == 0) return nullptr;
    NormPlan plan{.rows = f,
                  .packs = packs,
                  .warps = norm_warps(numbers),
                  .adds = call.in.size() > 5,
                  .total = call.out.size() > 3,
                  .apart = numbers > kMostWithTotal,
                  .ends = {.rows = f.rows, .columns = f.features}};
    plan.ends.pieces =
        std::min<int64_t>((f.rows + plan.warps - 1) / plan.warps, backend.multiprocessors());
    Bytes bytes = plan.ends.bytes(plan.sums(), sizeof(Wide<T>));
    const bool behind = plan.total && plan.apart;
    if (behind)
      bytes = std::max(bytes, bias_gradient_bytes(backend, dtype, f.rows, f.features));
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

}  // namespace pl::cuda
