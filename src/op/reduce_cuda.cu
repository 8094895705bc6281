// CUDA kernels of the reductions. Sums of 16-bit floats and float32 run in float32, their pieces
// are joined in float64.
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

struct Least {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Times {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a * b;
  }
};

// What is joined, and in what: a Part. `term`: what an element counts as; `end`: the result.
template <class T, class P, class J, bool sums = std::is_same_v<J, Plus> && !std::is_integral_v<T>>
struct ReductionOf {
  using Part = P;
  using Join = J;
  static constexpr bool kSums = sums;
  __device__ static Part term(Part x) { return x; }
  __device__ static Part end(Part x) { return x; }
};
template <class T>
struct SumOf : ReductionOf<T, Wide<T>, Plus> {
  __device__ static Wide<T> start() { return Wide<T>(0); }
};
template <class T>
struct ProdOf : ReductionOf<T, Wide<T>, Times> {
  __device__ static Wide<T> start() { return Wide<T>(1); }
};
template <class T>
struct MaxOf : ReductionOf<T, Wide<T>, Larger> {
  __device__ static Wide<T> start() {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(int64_t{1} << (8 * sizeof(T) - 1));
    else
      return -infinity(Wide<T>(0));
  }
};
template <class T>
struct MinOf : ReductionOf<T, Wide<T>, Least> {
  __device__ static Wide<T> start() {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(~(int64_t{1} << (8 * sizeof(T) - 1)));
    else
      return infinity(Wide<T>(0));
  }
};
// In float64, which squares of float32 do not leave.
template <class T>
struct NormOf : ReductionOf<T, double, Plus, false> {
  __device__ static double start() { return 0; }
  __device__ static double term(double x) { return x * x; }
  __device__ static double end(double x) { return sqrt_of(x); }
};
// The second stage, of parts that a first one left.
template <class R>
struct PartsOf : R {
  __device__ static typename R::Part term(typename R::Part x) { return x; }
};
template <class R>
struct FirstOf : R {
  __device__ static typename R::Part end(typename R::Part x) { return x; }
};

// (outer, reduced) to (outer, pieces): a block for each piece of a row.
template <class R, class In, class Out>
__global__ void reduce_runs(const In* x, SumEnd<Out> end, int64_t outer, int64_t reduced,
                            int64_t pieces, int64_t piece) {
  using A = typename R::Part;
  __shared__ A shared[32];
  for (int64_t task = blockIdx.x; task < outer * pieces; task += gridDim.x) {
    const int64_t first = task % pieces * piece, count = min(piece, reduced - first);
    A total = R::start();
    each_of_row(x + task / pieces * reduced + first, count, static_cast<int>(threadIdx.x),
                static_cast<int>(blockDim.x), [&](Wide<In> value, int64_t) {
                  total = typename R::Join()(total, R::term(static_cast<A>(value)));
                });
    total = block_all(total, R::start(), shared, typename R::Join());
    if (threadIdx.x == 0) end(task, static_cast<Out>(R::end(total)));
    __syncthreads();
  }
}

struct ReduceAxes {
  int rank = 0;
  int64_t sizes[kMaxReduceAxes] = {}, strides[kMaxReduceAxes] = {};
  int64_t count = 1;
  void add(int64_t size, int64_t stride) {
    count *= size;
    if (size == 1) return;
    if (rank > 0 && strides[rank - 1] == stride * size) {
      sizes[rank - 1] *= size;
      strides[rank - 1] = stride;
      return;
    }
    sizes[rank] = size;
    strides[rank++] = stride;
  }
  __device__ int64_t offset(int64_t k) const {
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t at = d > 0 ? k % sizes[d] : k;
      if (d > 0) k /= sizes[d];
      offset += at * strides[d];
    }
    return offset;
  }
};

// A thread for each output, its inputs in order.
template <class R, class In, class Out>
__global__ void reduce_each(const In* x, SumEnd<Out> end, ReduceAxes kept, ReduceAxes reduced) {
  using A = typename R::Part;
  const bool plain = reduced.rank <= 1;
  for (int64_t o = thread_index(); o < kept.count; o += thread_count()) {
    const In* from = x + kept.offset(o);
    A total = R::start();
    for (int64_t k = 0; k < reduced.count; ++k)
      total = typename R::Join()(
          total,
          R::term(static_cast<A>(widen(from[plain ? k * reduced.strides[0] : reduced.offset(k)]))));
    end(o, static_cast<Out>(R::end(total)));
  }
}

template <class Out>
struct ColumnSumEnd {
  SumEnd<Out> end;
  int64_t columns;
  __device__ void ahead(int64_t outer, int64_t column) const {
    end.ahead(outer * columns + column);
  }
  __device__ void operator()(int64_t outer, int64_t column, const double (&sums)[1]) const {
    end(outer * columns + column, static_cast<Out>(static_cast<Wide<Out>>(sums[0])));
  }
};

// Operands: [a running sum,] x, which is the last.
int summed_at(const PrepareCall& call) { return static_cast<int>(call.in.size()) - 1; }
template <class Out>
SumEnd<Out> sum_end(int x, void* const* in, void* const* out) {
  return {output<Out>(out, 0), x > 0 ? input<Out>(in, 0) : nullptr};
}

// x as (outer, reduced, inner); false when the reduced axes are not neighbours.
bool reduce_form(const PrepareCall& call, int64_t (&form)[3]) {
  const Shape& x = call.in.back().shape;
  const auto& axes = call.attrs.list("axes");
  int state = 0;
  form[0] = form[1] = form[2] = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x[axis] == 1) continue;
    const bool reduced = std::binary_search(axes.begin(), axes.end(), axis);
    if (reduced && state == 2) return false;
    if (reduced) state = 1;
    if (!reduced && state == 1) state = 2;
    form[reduced ? 1 : state == 2 ? 2 : 0] *= x[axis];
  }
  return true;
}

template <class R, class In, class Out>
std::unique_ptr<Kernel> runs_kernel(const PrepareCall& call, int64_t outer, int64_t reduced) {
  using A = typename R::Part;
  constexpr int64_t kPiece = 16384;
  const int64_t pieces = outer >= backend_of(call).multiprocessors() * int64_t{2}
                             ? 1
                             : (reduced + kPiece - 1) / kPiece;
  const int64_t piece = pieces > 1 ? kPiece : reduced;
  const int threads = reduced >= 4096 ? 512 : reduced >= 512 ? 128 : 32;
  const int x = summed_at(call);
  return make_kernel(
      call,
      [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
        const unsigned blocks = launch.blocks(outer * pieces, 1, 64);
        if (pieces == 1) {
          reduce_runs<R, In, Out><<<blocks, static_cast<unsigned>(threads), 0, launch.stream>>>(
              input<In>(in, x), sum_end<Out>(x, in, out), outer, reduced, 1, reduced);
          return;
        }
        A* parts = reinterpret_cast<A*>(workspace);
        reduce_runs<FirstOf<R>, In, A>
            <<<blocks, static_cast<unsigned>(threads), 0, launch.stream>>>(
                input<In>(in, x), SumEnd<A>{parts}, outer, reduced, pieces, piece);
        reduce_runs<PartsOf<R>, A, Out><<<launch.blocks(outer, 1, 64), 256, 0, launch.stream>>>(
            parts, sum_end<Out>(x, in, out), outer, pieces, 1, pieces);
      },
      pieces > 1 ? outer * pieces * static_cast<Bytes>(sizeof(A)) : 0);
}

template <class R, class In, class Out>
std::unique_ptr<Kernel> each_kernel(const PrepareCall& call) {
  const Shape& x = call.in.back().shape;
  const int at = summed_at(call);
  const auto& axes = call.attrs.list("axes");
  if (x.rank() > kMaxReduceAxes) return nullptr;
  ReduceAxes kept, reduced;
  int64_t stride = x.elements();
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x[axis] > 0) stride /= x[axis];
    (std::binary_search(axes.begin(), axes.end(), axis) ? reduced : kept).add(x[axis], stride);
  }
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (kept.count > 0)
      reduce_each<R, In, Out><<<launch.blocks(kept.count, 128), 128, 0, launch.stream>>>(
          input<In>(in, at), sum_end<Out>(at, in, out), kept, reduced);
  });
}

template <class In, class Out>
std::unique_ptr<Kernel> columns_kernel(const PrepareCall& call, const int64_t (&form)[3]) {
  using A = Wide<In>;
  const int x = summed_at(call);
  const bool packs = call.in_alignment(static_cast<size_t>(x)) >= kFullAlignment;
  const ColumnPlan plan = column_plan(form[0], form[1], form[2], packs ? Pack<In>::kSize : 1,
                                      backend_of(call).multiprocessors(), 1);
  return make_kernel(
      call,
      [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
        sum_columns<1, Pack<In>::kSize, A>(
            launch, plan, ColumnTerm<In>{input<In>(in, x), plan.columns},
            ColumnSumEnd<Out>{sum_end<Out>(x, in, out), plan.columns}, workspace);
      },
      plan.bytes(1, sizeof(A)));
}

template <template <class> class R, class In, class Out>
std::unique_ptr<Kernel> reduce_kernel(const PrepareCall& call) {
  int64_t form[3];
  if (call.in.back().elements() == 0 || !reduce_form(call, form))
    return each_kernel<R<In>, In, Out>(call);
  if (form[2] == 1 && (form[1] >= 32 || form[0] < 4096))
    return runs_kernel<R<In>, In, Out>(call, form[0], form[1]);
  if constexpr (R<In>::kSums)
    if (form[0] * form[2] < 32768 || form[1] >= 2048) return columns_kernel<In, Out>(call, form);
  return each_kernel<R<In>, In, Out>(call);
}

template <template <class> class R>
std::unique_ptr<Kernel> reduction(const PrepareCall& call) {
  const Dtype from = call.in.back().dtype, to = call.out[0].dtype;
  if (from == Dtype::bfloat16 && to == Dtype::float32) return reduce_kernel<R, Bf16, float>(call);
  if (from == Dtype::float16 && to == Dtype::float32) return reduce_kernel<R, Half, float>(call);
  return dispatch_number(from, [&]<class T>() { return reduce_kernel<R, T, T>(call); });
}

}  // namespace

std::unique_ptr<Kernel> reduce_sum(const PrepareCall& call) { return reduction<SumOf>(call); }
std::unique_ptr<Kernel> reduce_max(const PrepareCall& call) { return reduction<MaxOf>(call); }
std::unique_ptr<Kernel> reduce_min(const PrepareCall& call) { return reduction<MinOf>(call); }
std::unique_ptr<Kernel> reduce_prod(const PrepareCall& call) { return reduction<ProdOf>(call); }
std::unique_ptr<Kernel> reduce_norm(const PrepareCall& call) { return reduction<NormOf>(call); }

}  // namespace pl::cuda
