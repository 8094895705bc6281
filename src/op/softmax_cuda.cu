// CUDA kernels over rows of scores: softmax, cross-entropies, accuracies. A block, or for short
// rows a warp, has a row; exponentials are summed while the largest is still being looked for.
#include <climits>

#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/cuda/score_rows.h"

namespace pl::cuda {
namespace {

// The threads that share a row: a block, or a warp of a block with several.
struct RowTeam {
  int thread, threads;
  bool warp;
};

template <class W, class F>
__device__ W team_all(const RowTeam& team, W x, W neutral, W* shared, F join) {
  return team.warp ? warp_all(x, join) : block_all(x, neutral, shared, join);
}

// Of numbers that end as 16 bits a fast exponential is exact enough.
template <class T, class W>
__device__ inline W row_exp(W x) {
  if constexpr (kNarrow<T>)
    return __expf(x);
  else
    return exp_of(x);
}

// All that a row's softmax needs: the largest score, the first place where it is, and the sum of
// exp(x - largest). NaN makes the sum NaN.
template <class T>
struct RowSums {
  using W = Wide<T>;
  W largest = -infinity(W(0)), sum = 0;
  int64_t at = INT64_MAX;

  template <int N>
  __device__ void take(const T (&values)[N], int64_t first) {
    W v[N], most = -infinity(W(0));
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[j] = widen(values[j]);
      most = v[j] > most ? v[j] : most;
    }
    if (most > largest) {
      sum *= row_exp<T>(largest - most);
      largest = most;
      at = first;
      for (int j = N - 1; j >= 0; --j)
        if (v[j] == most) at = first + j;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sum += v[j] == -infinity(v[j]) ? W(0) : row_exp<T>(v[j] - largest);
  }
  __device__ void take_row(const RowTeam& team, const T* row, int64_t classes) {
    constexpr int kSize = Pack<T>::kSize;
    int64_t done = 0;
    if (reinterpret_cast<uintptr_t>(row) % 16 == 0) {
      const int64_t packs = classes / kSize;
      for (int64_t p = team.thread; p < packs; p += team.threads)
        take(load_pack(row + p * kSize).at, p * kSize);
      done = packs * kSize;
    }
    for (int64_t i = done + team.thread; i < classes; i += team.threads) {
      const T one[1] = {row[i]};
      take(one, i);
    }
  }
  // Those of the whole row, to each of its threads.
  __device__ void join(const RowTeam& team, W* shared) {
    const W own = largest;
    largest = team_all(team, own, -infinity(W(0)), shared, Larger{});
    sum = team_all(team, own == largest ? sum : sum * exp_of(own - largest), W(0), shared, Plus{});
    if (team.warp) __syncwarp();
  }
};

template <class T>
__device__ RowSums<T> sums_of_row(const RowTeam& team, const T* row, int64_t classes,
                                  Wide<T>* shared) {
  RowSums<T> sums;
  sums.take_row(team, row, classes);
  sums.join(team, shared);
  return sums;
}

// body(row, team, shared) for all rows; blockDim.y warps, or one block, a row.
template <class W, class Body>
__device__ void each_score_row(int64_t rows, Body body) {
  __shared__ W shared[32];
  const bool warp = blockDim.y > 1;
  const RowTeam team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), warp};
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows;
       r += static_cast<int64_t>(gridDim.x) * blockDim.y)
    body(r, team, shared);
}

struct Smaller {
  __device__ int64_t operator()(int64_t a, int64_t b) const { return a < b ? a : b; }
};

struct SmallerOf {
  __device__ int operator()(int a, int b) const { return a < b ? a : b; }
};

enum class SoftmaxKind : uint8_t { softmax, log_softmax };

template <class T>
__global__ void softmax_rows(SoftmaxKind kind, const T* x, T* y, int64_t rows, int64_t classes) {
  using W = Wide<T>;
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    const T* row = x + r * classes;
    const RowSums<T> sums = sums_of_row(team, row, classes, shared);
    const W factor = W(1) / sums.sum, log = log_of(sums.sum);
    map_row(row, y + r * classes, classes, team.thread, team.threads, [&](W v, int64_t) {
      return kind == SoftmaxKind::softmax ? row_exp<T>(v - sums.largest) * factor
                                          : (v - sums.largest) - log;
    });
  });
}

template <class T>
__global__ void softmax_gradient_rows(const T* y, const T* dy, T* dx, int64_t rows,
                                      int64_t classes) {
  using W = Wide<T>;
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    const T *probs = y + r * classes, *gradient = dy + r * classes;
    W dot = 0;
    each_of_row(probs, classes, team.thread, team.threads,
                [&](W p, int64_t c) { dot += p * widen(gradient[c]); });
    dot = team_all(team, dot, W(0), shared, Plus{});
    for (int64_t c = team.thread; c < classes; c += team.threads)
      dx[r * classes + c] = static_cast<T>(widen(probs[c]) * (widen(gradient[c]) - dot));
  });
}

template <class T>
__global__ void sparse_loss_rows(const T* logits, const int32_t* labels, T* loss, T* probs,
                                 int64_t rows, int64_t classes) {
  using W = Wide<T>;
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    const T* row = logits + r * classes;
    const int64_t label = labels[r];
    const bool known = label >= 0 && label < classes;
    const W of_label = known ? widen(row[label]) : W(0);
    const RowSums<T> sums = sums_of_row(team, row, classes, shared);
    const W factor = W(1) / sums.sum;
    // All have read their label's logit in front of the sums.
    map_row(row, probs + r * classes, classes, team.thread, team.threads,
            [&](W v, int64_t) { return row_exp<T>(v - sums.largest) * factor; });
    if (team.thread == 0)
      loss[r] = static_cast<T>(known ? (sums.largest - of_label) + log_of(sums.sum) : nan_of(W(0)));
  });
}

template <class T>
__global__ void sparse_loss_gradient_rows(const T* probs, const int32_t* labels, const T* dloss,
                                          T* dlogits, int64_t rows, int64_t classes) {
  using W = Wide<T>;
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W*) {
    const int64_t label = labels[r];
    const bool known = label >= 0 && label < classes;
    const W scale = known ? widen(dloss[r]) : nan_of(W(0));
    map_row(probs + r * classes, dlogits + r * classes, classes, team.thread, team.threads,
            [&](W p, int64_t c) { return (c == label ? p - W(1) : p) * scale; });
  });
}

// loss = sum(t) * log_sum - sum(t * x), in terms of x - x[0] to keep the sums small.
template <class T>
__global__ void dense_loss_rows(const T* logits, const T* targets, T* loss, T* probs, int64_t rows,
                                int64_t classes) {
  using W = Wide<T>;
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    const T *row = logits + r * classes, *target = targets + r * classes;
    const W base = widen(row[0]);
    W total = 0, product = 0;
    each_of_row(target, classes, team.thread, team.threads, [&](W t, int64_t c) {
      if (t == W(0)) return;
      total += t;
      product += t * (widen(row[c]) - base);
    });
    total = team_all(team, total, W(0), shared, Plus{});
    product = team_all(team, product, W(0), shared, Plus{});
    const RowSums<T> sums = sums_of_row(team, row, classes, shared);
    const W factor = W(1) / sums.sum;
    map_row(row, probs + r * classes, classes, team.thread, team.threads,
            [&](W v, int64_t) { return row_exp<T>(v - sums.largest) * factor; });
    if (team.thread == 0)
      loss[r] = static_cast<T>(total * ((sums.largest - base) + log_of(sums.sum)) - product);
  });
}

template <class T>
__global__ void dense_loss_gradient_rows(const T* probs, const T* targets, const T* dloss,
                                         T* dlogits, int64_t rows, int64_t classes) {
  using W = Wide<T>;
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    const T* target = targets + r * classes;
    W total = 0;
    each_of_row(target, classes, team.thread, team.threads, [&](W t, int64_t) { total += t; });
    total = team_all(team, total, W(0), shared, Plus{});
    const W scale = widen(dloss[r]);
    map_row(probs + r * classes, dlogits + r * classes, classes, team.thread, team.threads,
            [&](W p, int64_t c) { return (p * total - widen(target[c])) * scale; });
  });
}

// The first of the largest; NaN is never larger, as in the CPU's kernel.
template <class W>
struct Best {
  W value;
  int64_t at;
};
template <class W>
__device__ inline Best<W> better(Best<W> a, Best<W> b) {
  return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
}
// Scores that begin with NaN keep it, whatever follows.
template <class T>
__device__ int64_t first_largest(const RowTeam& team, const T* row, int64_t classes,
                                 Wide<T>* shared, int64_t* places) {
  using W = Wide<T>;
  Best<W> mine{-infinity(W(0)), classes};
  each_of_row(row, classes, team.thread, team.threads, [&](W v, int64_t c) {
    mine = better(mine, Best<W>{v, c});
  });
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Best<W> other{__shfl_xor_sync(0xffffffffu, mine.value, step),
                        __shfl_xor_sync(0xffffffffu, mine.at, step)};
    mine = better(mine, other);
  }
  if (!team.warp && team.threads > 32) {
    __syncthreads();
    if (team.thread % 32 == 0) {
      shared[team.thread / 32] = mine.value;
      places[team.thread / 32] = mine.at;
    }
    __syncthreads();
    for (int w = 0; w < team.threads / 32; ++w) mine = better(mine, Best<W>{shared[w], places[w]});
    __syncthreads();
  }
  const W first = widen(row[0]);
  return first != first ? 0 : mine.at == classes ? 0 : mine.at;
}

template <class T>
__global__ void accuracy_rows(const T* scores, const int32_t* labels, const T* targets, float* y,
                              int64_t rows, int64_t classes) {
  using W = Wide<T>;
  __shared__ int64_t places[32];
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    const int64_t best = first_largest(team, scores + r * classes, classes, shared, places);
    const int64_t right =
        targets ? first_largest(team, targets + r * classes, classes, shared, places) : labels[r];
    if (team.thread == 0) y[r] = best == right ? 1.0f : 0.0f;
  });
}

// In place: logits become their gradients. As accuracy_rows and the losses above in one.
template <class T>
__global__ void head_rows(const HeadRows head, T* logits, int64_t rows, int64_t classes) {
  using W = Wide<T>;
  __shared__ int64_t places[32];
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    T* row = logits + r * classes;
    const int64_t label = head.labels[r];
    const bool known = label >= 0 && label < classes;
    const W of_label = known ? widen(row[label]) : W(0);
    RowSums<T> sums;
    sums.take_row(team, row, classes);
    const W own = sums.largest;
    sums.join(team, shared);
    const int64_t mine = own == sums.largest ? sums.at : INT64_MAX;
    const int64_t found = team_all(team, mine, INT64_MAX, places, Smaller{});
    const int64_t best = sums.sum != sums.sum || found == INT64_MAX ? 0 : found;
    if (team.thread == 0) {
      static_cast<W*>(head.loss)[r] =
          known ? (sums.largest - of_label) + log_of(sums.sum) : nan_of(W(0));
      head.correct[r] = best == label ? 1.0f : 0.0f;
    }
    if (!head.dloss) return;
    const W scale = known ? static_cast<const W*>(head.dloss)[r] : nan_of(W(0));
    const W factor = W(1) / sums.sum;
    // The label's logit was read by all in front of the sums.
    map_row(row, row, classes, team.thread, team.threads, [&](W v, int64_t c) {
      const W p = row_exp<T>(v - sums.largest) * factor;
      return (c == label ? p - W(1) : p) * scale;
    });
  });
}

// The same for long rows of 16-bit numbers, whole packs: few instructions an element, and two blocks
// a processor, so that one computes while the other waits for memory. A row is read again from the
// cache.
constexpr int kHeadThreads = 1024;
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class T>
__global__ void __launch_bounds__(kHeadThreads, 2)
    head_packs(const HeadRows head, T* logits, int rows, int classes) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr float kLog = 1.4426950408889634f;  // of e, to the base 2
  __shared__ float shared[32];
  __shared__ int places[32];
  const int thread = static_cast<int>(threadIdx.x), packs = classes / kSize;
  const float least = -infinity(0.0f);
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x)) {
    T* row = logits + static_cast<int64_t>(r) * classes;
    const int label = head.labels[r];
    const bool known = label >= 0 && label < classes;
    const float of_label = known ? widen(row[label]) : 0.0f;
    float largest = least, sum = 0;
    int at = INT_MAX;  // the pack where the largest is first
#pragma unroll 2
    for (int p = thread; p < packs; p += kHeadThreads) {
      float v[kSize], most = least;
      load_wide<kSize>(row + p * kSize, v);
#pragma unroll
      for (int j = 0; j < kSize; ++j) most = fmaxf(most, v[j]);
      if (most > largest) {
        sum *= power_of_two((largest - most) * kLog);
        largest = most;
        at = p;
      }
      const float base = largest == least ? 0.0f : largest * kLog;
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum += power_of_two(fmaf(v[j], kLog, -base));
    }
    const float top = block_all(largest, least, shared, Larger{});
    const float less = largest == least ? 0.0f : power_of_two((largest - top) * kLog);
    sum = block_all(sum * less, 0.0f, shared, Plus{});
    const int mine = largest == top ? at : INT_MAX;
    const int found = block_all(mine, INT_MAX, places, SmallerOf{});
    if (thread == 0)
      static_cast<float*>(head.loss)[r] =
          known ? (top - of_label) + log_of(sum) : nan_of(0.0f);
    // Whoever has the pack looks into it before it becomes gradients.
    if (mine == found && (mine != INT_MAX || thread == 0)) {
      int best = 0;
      if (mine != INT_MAX && sum == sum)
        for (int j = kSize - 1; j >= 0; --j)
          if (widen(row[mine * kSize + j]) == top) best = mine * kSize + j;
      head.correct[r] = best == label ? 1.0f : 0.0f;
    }
    if (!head.dloss) continue;
    const float scale = known ? static_cast<const float*>(head.dloss)[r] : nan_of(0.0f);
    const float factor = scale / sum, base = top * kLog;
    const int own = known ? label / kSize : -1;
#pragma unroll 2
    for (int p = thread; p < packs; p += kHeadThreads) {
      float v[kSize];
      load_wide<kSize>(row + p * kSize, v);
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[j] = power_of_two(fmaf(v[j], kLog, -base)) * factor;
      if (p == own)
#pragma unroll
        for (int j = 0; j < kSize; ++j)
          if (p * kSize + j == label) v[j] -= scale;
      store_narrow<kSize>(row + p * kSize, v);
    }
  }
}

template <class T>
__global__ void sparsemax_rows(const T* x, T* y, int64_t rows, int64_t classes) {
  using W = Wide<T>;
  __shared__ double sums[32];
  each_score_row<W>(rows, [&](int64_t r, const RowTeam& team, W* shared) {
    const T* row = x + r * classes;
    W mine = -infinity(W(0));
    each_of_row(row, classes, team.thread, team.threads,
                [&](W v, int64_t) { mine = Larger{}(mine, v); });
    const auto largest =
        static_cast<double>(team_all(team, mine, -infinity(W(0)), shared, Larger{}));
    double threshold = -1;
    for (double left = static_cast<double>(classes) + 1;;) {
      double sum = 0, count = 0;
      each_of_row(row, classes, team.thread, team.threads, [&](W v, int64_t) {
        const double z = static_cast<double>(v) - largest;
        if (!(z > threshold)) return;
        sum += z;
        count += 1;
      });
      sum = team_all(team, sum, 0.0, sums, Plus{});
      count = team_all(team, count, 0.0, sums, Plus{});
      if (count == 0 || count == left) break;  // 0: of NaN, which stays
      left = count;
      threshold = (sum - 1) / count;
    }
    map_row(row, y + r * classes, classes, team.thread, team.threads, [&](W v, int64_t) {
      const double z = static_cast<double>(v) - largest - threshold;
      return static_cast<W>(z <= 0 ? 0 : z);
    });
  });
}

struct ScoreForm {
  int64_t rows, classes;
};
ScoreForm score_form(const Meta& scores) {
  const int64_t classes = scores.shape.back();
  return {classes > 0 ? scores.elements() / classes : 0, classes};
}
struct ScoreGrid {
  unsigned blocks;
  dim3 threads;
};
ScoreGrid score_grid(const Launch& launch, const ScoreForm& f) {
  if (f.classes <= 1024) return {launch.blocks(f.rows, 4, 16), dim3(32, 4)};
  return {launch.blocks(f.rows, 1, 16), dim3(f.classes >= 16384 ? 1024 : 256)};
}

// run.template operator()<T>(grid, stream, in, out).
template <class Run>
std::unique_ptr<Kernel> score_kernel(const PrepareCall& call, Run run) {
  const ScoreForm f = score_form(call.in[0]);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (f.rows == 0) return;
      run.template operator()<T>(score_grid(launch, f), launch.stream, f, in, out);
    });
  });
}

std::unique_ptr<Kernel> softmax_kernel(const PrepareCall& call, SoftmaxKind kind) {
  return score_kernel(call, [kind]<class T>(const ScoreGrid& g, cudaStream_t stream,
                                            const ScoreForm& f, void* const* in, void* const* out) {
    softmax_rows<T><<<g.blocks, g.threads, 0, stream>>>(kind, input<T>(in, 0), output<T>(out, 0),
                                                        f.rows, f.classes);
  });
}

}  // namespace

std::unique_ptr<Kernel> softmax(const PrepareCall& call) {
  return softmax_kernel(call, SoftmaxKind::softmax);
}
std::unique_ptr<Kernel> log_softmax(const PrepareCall& call) {
  return softmax_kernel(call, SoftmaxKind::log_softmax);
}
std::unique_ptr<Kernel> softmax_gradient(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    softmax_gradient_rows<T><<<g.blocks, g.threads, 0, stream>>>(
        input<T>(in, 0), input<T>(in, 1), output<T>(out, 0), f.rows, f.classes);
  });
}
std::unique_ptr<Kernel> sparsemax(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    sparsemax_rows<T>
        <<<g.blocks, g.threads, 0, stream>>>(input<T>(in, 0), output<T>(out, 0), f.rows, f.classes);
  });
}
std::unique_ptr<Kernel> sparse_softmax_cross_entropy(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    sparse_loss_rows<T><<<g.blocks, g.threads, 0, stream>>>(input<T>(in, 0), input<int32_t>(in, 1),
                                                            output<T>(out, 0), output<T>(out, 1),
                                                            f.rows, f.classes);
  });
}
std::unique_ptr<Kernel> sparse_softmax_cross_entropy_gradient(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    sparse_loss_gradient_rows<T>
        <<<g.blocks, g.threads, 0, stream>>>(input<T>(in, 0), input<int32_t>(in, 1),
                                             input<T>(in, 2), output<T>(out, 0), f.rows, f.classes);
  });
}
std::unique_ptr<Kernel> softmax_cross_entropy(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    dense_loss_rows<T><<<g.blocks, g.threads, 0, stream>>>(
        input<T>(in, 0), input<T>(in, 1), output<T>(out, 0), output<T>(out, 1), f.rows, f.classes);
  });
}
std::unique_ptr<Kernel> softmax_cross_entropy_gradient(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    dense_loss_gradient_rows<T><<<g.blocks, g.threads, 0, stream>>>(
        input<T>(in, 0), input<T>(in, 1), input<T>(in, 2), output<T>(out, 0), f.rows, f.classes);
  });
}
std::unique_ptr<Kernel> sparse_categorical_accuracy(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    accuracy_rows<T><<<g.blocks, g.threads, 0, stream>>>(
        input<T>(in, 0), input<int32_t>(in, 1), nullptr, output<float>(out, 0), f.rows, f.classes);
  });
}
std::unique_ptr<Kernel> categorical_accuracy(const PrepareCall& call) {
  return score_kernel(call, []<class T>(const ScoreGrid& g, cudaStream_t stream, const ScoreForm& f,
                                        void* const* in, void* const* out) {
    accuracy_rows<T><<<g.blocks, g.threads, 0, stream>>>(input<T>(in, 0), nullptr, input<T>(in, 1),
                                                         output<float>(out, 0), f.rows, f.classes);
  });
}

void launch_head_rows(const Launch& launch, Dtype dtype, const HeadRows& head, void* logits,
                      int64_t rows, int64_t classes) {
  const ScoreGrid g = score_grid(launch, {rows, classes});
  auto go = [&]<class T>() {
    if constexpr (kNarrow<T>) {
      if (classes >= 4 * kHeadThreads && classes % Pack<T>::kSize == 0 &&
          std::max(rows, classes) < INT_MAX) {
        head_packs<T><<<launch.blocks(rows, 1, 2), kHeadThreads, 0, launch.stream>>>(
            head, static_cast<T*>(logits), static_cast<int>(rows), static_cast<int>(classes));
        return;
      }
    }
    head_rows<T>
        <<<g.blocks, g.threads, 0, launch.stream>>>(head, static_cast<T*>(logits), rows, classes);
  };
  if (dtype == Dtype::bfloat16) return go.template operator()<Bf16>();
  if (dtype == Dtype::float16) return go.template operator()<Half>();
  if (dtype == Dtype::float64) return go.template operator()<double>();
  go.template operator()<float>();
}

}  // namespace pl::cuda
