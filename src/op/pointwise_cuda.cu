// CUDA kernels of ops that work element by element: one kernel a dtype for all of them, which
// chooses what to compute for a whole pack of elements at a time and so costs what memory costs.
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/cuda/product.h"
#include "op/cuda/walk.h"
#include "op/tile_program.h"

namespace pl::cuda {
namespace {

// What is computed of a and b; x and y are constants.
struct Point {
  TileOp op = TileOp::add;
  double x = 0, y = 0;
  bool clipped = false;  // relu, relu_gradient: at x
};

// The probability below x, or Keras's approximation of it.
template <bool fast, class W>
__device__ W below(W x, bool approximate) {
  if (!approximate) return W(0.5) * erfc_of(-x * W(0.70710678118654752));
  const W u = W(0.79788456080286536) * (x + W(0.044715) * x * x * x);
  if constexpr (fast) return __fdividef(1.0f, 1.0f + __expf(-2.0f * u));
  return W(1) / (W(1) + exp_of(W(-2) * u));
}
template <bool fast, class W>
__device__ W gelu_of(W x, bool approximate) {
  if (x == -infinity(x)) return W(0);
  return x * below<fast>(x, approximate);
}
template <bool fast, class W>
__device__ W gelu_slope(W x, bool approximate) {
  if (abs_of(x) == infinity(x)) return x > W(0) ? W(1) : W(0);
  const W s = below<fast>(x, approximate);
  if (!approximate) return s + x * W(0.39894228040143268) * exp_of(W(-0.5) * x * x);
  const W du = W(0.79788456080286536) * (W(1) + W(3 * 0.044715) * x * x);
  const W flat = s * (W(1) - s);  // 0 where du may overflow
  return flat == W(0) ? s : s + x * flat * W(2) * du;
}

// As cpu's in pointwise_math.h.
template <class W>
__device__ W floor_divided(W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    if (b == 0) return W(0);
    if (b == -1)
      return static_cast<W>(std::make_unsigned_t<W>(0) - static_cast<std::make_unsigned_t<W>>(a));
    return a / b - W(a % b != 0 && (a < 0) != (b < 0));
  } else {
    if (b == W(0)) return a / b;
    const W rest = fmod_of(a, b);
    const W quotient = (a - rest) / b - W(rest != W(0) && (rest < W(0)) != (b < W(0)));
    const W whole = floor_of(quotient);
    return quotient - whole > W(0.5) ? whole + W(1) : whole;
  }
}
template <class W>
__device__ W modulo(W a, W b) {
  W rest;
  if constexpr (std::is_integral_v<W>)
    rest = b == 0 || b == -1 ? W(0) : a % b;
  else
    rest = fmod_of(a, b);
  return rest != W(0) && (rest < W(0)) != (b < W(0)) ? rest + b : rest;
}
template <class W>
__device__ W raised(W base, W power) {
  if constexpr (std::is_integral_v<W>) {
    if (power < 0) return base == 1 ? W(1) : base != -1 ? W(0) : power % 2 == 0 ? W(1) : W(-1);
    std::make_unsigned_t<W> result = 1, square = static_cast<std::make_unsigned_t<W>>(base);
    for (; power > 0; power /= 2, square *= square)
      if (power % 2 != 0) result *= square;
    return static_cast<W>(result);
  } else {
    return pow_of(base, power);
  }
}

// y[j] = f(a[j], b[j]), computed wide.
template <class T, int N, class F>
__device__ inline void each(T (&a)[N], const T (&b)[N], F f) {
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] = static_cast<T>(f(widen(a[j]), widen(b[j])));
}

template <class T, int N>
__device__ void binary_points(TileOp op, T (&a)[N], const T (&b)[N]) {
  using W = Wide<T>;
  switch (op) {
    case TileOp::add:
      return each(a, b, [](W p, W q) { return p + q; });
    case TileOp::subtract:
      return each(a, b, [](W p, W q) { return p - q; });
    case TileOp::multiply:
      return each(a, b, [](W p, W q) { return p * q; });
    case TileOp::maximum:
      return each(a, b, [](W p, W q) { return p > q || p != p ? p : q; });
    case TileOp::minimum:
      return each(a, b, [](W p, W q) { return p < q || p != p ? p : q; });
    case TileOp::equal_mask:
      return each(a, b, [](W p, W q) { return p == q ? W(1) : W(0); });
    case TileOp::greater_mask:
      return each(a, b, [](W p, W q) { return p > q ? W(1) : W(0); });
    default:
      return each(a, b, [](W p, W q) { return p >= q ? W(1) : W(0); });
  }
}

template <class T, int N>
__device__ void real_points(const Point& c, T (&a)[N], const T (&b)[N]) {
  using W = Wide<T>;
  constexpr bool kFast = kNarrow<T>;
  const W x = static_cast<W>(c.x), y = static_cast<W>(c.y);
  const bool flag = c.x != 0;
  switch (c.op) {
    case TileOp::divide:
      return each(a, b, [](W p, W q) { return p / q; });
    case TileOp::negative:
      return each(a, b, [](W p, W) { return -p; });
    case TileOp::exp:
      return each(a, b, [](W p, W) { return exp_of(p); });
    case TileOp::log:
      return each(a, b, [](W p, W) { return log_of(p); });
    case TileOp::sqrt:
      return each(a, b, [](W p, W) { return sqrt_of(p); });
    case TileOp::square:
      return each(a, b, [](W p, W) { return p * p; });
    case TileOp::tanh:
      return each(a, b, [](W p, W) { return tanh_of(p); });
    case TileOp::sigmoid:
      return each(a, b, [](W p, W) {
        const W e = exp_of(-abs_of(p));
        return (p >= W(0) ? W(1) : e) / (W(1) + e);
      });
    case TileOp::abs:
      return each(a, b, [](W p, W) { return abs_of(p); });
    case TileOp::sign:
      return each(a, b, [](W p, W) { return p > W(0) ? W(1) : p < W(0) ? W(-1) : p; });
    case TileOp::softplus:
      return each(a, b,
                  [](W p, W) { return (p < W(0) ? W(0) : p) + log1p_of(exp_of(-abs_of(p))); });
    case TileOp::floor:
      return each(a, b, [](W p, W) { return floor_of(p); });
    case TileOp::ceil:
      return each(a, b, [](W p, W) { return ceil_of(p); });
    case TileOp::trunc:
      return each(a, b, [](W p, W) { return trunc_of(p); });
    case TileOp::round:
      return each(a, b, [](W p, W) { return round_of(p); });
    case TileOp::scale:
      return each(a, b, [=](W p, W) { return p * x + y; });
    case TileOp::relu:
      if (c.clipped) return each(a, b, [=](W p, W) { return p <= W(0) ? W(0) : p >= x ? x : p; });
      return each(a, b, [](W p, W) { return p <= W(0) ? W(0) : p; });
    case TileOp::relu_gradient:
      if (c.clipped) return each(a, b, [=](W p, W q) { return p > W(0) && p < x ? q : W(0); });
      return each(a, b, [](W p, W q) { return p > W(0) ? q : W(0); });
    case TileOp::leaky_relu:
      return each(a, b, [=](W p, W) { return p > W(0) ? p : x * p; });
    case TileOp::leaky_relu_gradient:
      return each(a, b, [=](W p, W q) { return p > W(0) ? q : x * q; });
    case TileOp::gelu:
      return each(a, b, [=](W p, W) { return gelu_of<kFast>(p, flag); });
    case TileOp::gelu_gradient:
      return each(a, b, [=](W p, W q) { return q * gelu_slope<kFast>(p, flag); });
    default:
      return binary_points(c.op, a, b);
  }
}

// What takes many registers, apart from the others.
bool is_dear(TileOp op) {
  return op == TileOp::floor_divide || op == TileOp::mod || op == TileOp::power ||
         op == TileOp::expm1 || op == TileOp::sin || op == TileOp::cos;
}
template <class T, int N>
__device__ void dear_points(TileOp op, T (&a)[N], const T (&b)[N]) {
  using W = Wide<T>;
  switch (op) {
    case TileOp::floor_divide:
      return each(a, b, [](W p, W q) { return floor_divided(p, q); });
    case TileOp::mod:
      return each(a, b, [](W p, W q) { return modulo(p, q); });
    case TileOp::power:
      return each(a, b, [](W p, W q) { return raised(p, q); });
    default:
      break;
  }
  if constexpr (!std::is_integral_v<T>) {
    if (op == TileOp::expm1) return each(a, b, [](W p, W) { return expm1_of(p); });
    if (op == TileOp::sin) return each(a, b, [](W p, W) { return sin_of(p); });
    return each(a, b, [](W p, W) { return cos_of(p); });
  }
}

template <bool dear, class T, int N>
__device__ void points(const Point& c, T (&a)[N], const T (&b)[N]) {
  if constexpr (dear)
    dear_points(c.op, a, b);
  else if constexpr (std::is_integral_v<T>)
    binary_points(c.op, a, b);
  else
    real_points(c, a, b);
}

// b may be null: then the op has one operand. y may lie on either.
template <bool dear, class T>
__global__ void flat_points(Point c, const T* a, const T* b, T* y, int64_t total) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = total / kSize;
  for (int64_t i = thread_index(); i < packs; i += thread_count()) {
    Pack<T> left = load_pack(a + i * kSize), right = b ? load_pack(b + i * kSize) : left;
    points<dear>(c, left.at, right.at);
    store_pack(y + i * kSize, left);
  }
  const int64_t last = packs * kSize + thread_index();
  if (last < total) {
    T left[1] = {a[last]}, right[1] = {b ? b[last] : a[last]};
    points<dear>(c, left, right);
    y[last] = left[0];
  }
}

// gelu alone, of whole packs: a kernel that knows what it computes has room for more of them at a
// time. From the last on, which is still in the cache. The result may lie on either operand.
template <class T, bool kGradient>
__global__ void __launch_bounds__(256)
    gelu_packs(const T* x, const T* dy, T* y, int64_t packs, bool approximate) {
  constexpr int kSize = Pack<T>::kSize;
  for (int64_t i = packs - 1 - thread_index(); i >= 0; i -= thread_count()) {
    Pack<T> pack = load_pack(x + i * kSize), slope;
    if constexpr (kGradient) slope = load_pack(dy + i * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const Wide<T> v = widen(pack.at[j]);
      if constexpr (kGradient)
        pack.at[j] = static_cast<T>(gelu_slope<kNarrow<T>>(v, approximate) * widen(slope.at[j]));
      else
        pack.at[j] = static_cast<T>(gelu_of<kNarrow<T>>(v, approximate));
    }
    store_pack(y + i * kSize, pack);
  }
}

template <int N>
__device__ void offsets(const Walk<N>& w, int64_t at, int64_t (&offset)[N]) {
  for (int i = 0; i < N; ++i) offset[i] = 0;
  for (int d = w.rank - 1; d >= 0; --d) {
    const int64_t place = d > 0 ? at % w.sizes[d] : at;
    if (d > 0) at /= w.sizes[d];
    for (int i = 0; i < N; ++i) offset[i] += place * w.strides[i][d];
  }
}

template <int N>
__device__ void short_offsets(const Walk<N>& w, uint32_t at, int64_t (&offset)[N]) {
  for (int i = 0; i < N; ++i) offset[i] = 0;
  for (int d = w.rank - 1; d >= 0; --d) {
    const auto size = static_cast<uint32_t>(w.sizes[d]);
    const uint32_t place = d > 0 ? at % size : at;
    if (d > 0) at /= size;
    for (int i = 0; i < N; ++i) offset[i] += place * w.strides[i][d];
  }
}

// kSize neighbours at a time: a pack, whose elements along the last dimension follow one another
// or are one and the same; or a single one.
template <bool dear, class T, int kSize>
__global__ void strided_points(Point c, const T* a, const T* b, T* y, Walk<2> walk) {
  const int last = walk.rank - 1;
  for (int64_t i = thread_index() * kSize; i < walk.total; i += thread_count() * kSize) {
    int64_t from[2];
    if (walk.total <= 0xffffffff)
      short_offsets(walk, static_cast<uint32_t>(i), from);
    else
      offsets(walk, i, from);
    auto take = [&](const T* x, int64_t at, bool steps, T(&to)[kSize]) {
      if (kSize > 1 && steps) {
        const Pack<T> pack = load_pack(x + at);
#pragma unroll
        for (int j = 0; j < kSize; ++j) to[j] = pack.at[j % Pack<T>::kSize];
      } else {
        const T one = x[at];
#pragma unroll
        for (int j = 0; j < kSize; ++j) to[j] = one;
      }
    };
    T left[kSize], right[kSize];
    take(a, from[0], last >= 0 && walk.strides[0][last] != 0, left);
    take(b, from[1], last >= 0 && walk.strides[1][last] != 0, right);
    points<dear>(c, left, right);
    if constexpr (kSize > 1) {
      Pack<T> pack;
#pragma unroll
      for (int j = 0; j < kSize; ++j) pack.at[j] = left[j];
      store_pack(y + i, pack);
    } else {
      y[i] = left[0];
    }
  }
}

template <class T>
__global__ void strided_copy(const T* x, T* y, Walk<1> walk) {
  for (int64_t i = thread_index(); i < walk.total; i += thread_count()) {
    int64_t from[1];
    offsets(walk, i, from);
    y[i] = x[from[0]];
  }
}

template <bool dear, class T>
std::unique_ptr<Kernel> point_kernel(const PrepareCall& call, const Point& point, bool two) {
  const Shape& shape = call.out[0].shape;
  Walk<2> walk;
  if (!broadcast_walk<2>({&call.in[0].shape, &call.in[two ? 1 : 0].shape}, shape, &walk))
    return nullptr;
  const int64_t total = shape.elements();
  const bool flat = walk.flat();
  if (flat) backend_of(call).load(reinterpret_cast<const void*>(strided_points<dear, T, 1>));
  // Every pack of the result lies in one run of the last dimension, and so do the operands' packs.
  constexpr int kSize = Pack<T>::kSize;
  const bool aligned = call.alignment() >= kFullAlignment;
  bool packs = aligned && walk.rank > 0 && walk.sizes[walk.rank - 1] % kSize == 0;
  for (int i = 0; packs && i < 2; ++i)
    for (int d = 0; packs && d < walk.rank; ++d)
      packs = d + 1 < walk.rank
                  ? walk.strides[i][d] % kSize == 0 || walk.strides[i][walk.rank - 1] == 0
                  : walk.strides[i][d] <= 1;
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (total == 0) return;
    const T *a = input<T>(in, 0), *b = two ? input<T>(in, 1) : nullptr;
    if constexpr (kNarrow<T> && !dear) {
      const bool gelu = point.op == TileOp::gelu || point.op == TileOp::gelu_gradient;
      if (gelu && flat && total % kSize == 0 && at_packs(a, b, output<T>(out, 0))) {
        auto* kernel = two ? gelu_packs<T, true> : gelu_packs<T, false>;
        kernel<<<launch.blocks(total / kSize, 256, 64), 256, 0, launch.stream>>>(
            a, b, output<T>(out, 0), total / kSize, point.x != 0);
        return;
      }
    }
    if (flat && at_packs(a, b, output<T>(out, 0)))
      flat_points<dear, T><<<launch.blocks(total / Pack<T>::kSize + 1, 256), 256, 0, launch.stream>>>(
          point, a, b, output<T>(out, 0), total);
    else if (packs && !flat)
      strided_points<dear, T, kSize><<<launch.blocks(total / kSize, 256), 256, 0, launch.stream>>>(
          point, a, b, output<T>(out, 0), walk);
    else
      strided_points<dear, T, 1><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
          point, a, b ? b : a, output<T>(out, 0), walk);
  });
}

}  // namespace

std::unique_ptr<Kernel> pointwise(const PrepareCall& call, TileOp op) {
  Point point{.op = op};
  const bool two = operands_of(op) == 2;
  if (op == TileOp::scale) {
    point.x = call.attrs.real("factor");
    point.y = call.attrs.real("offset", 0);
  } else if (op == TileOp::leaky_relu || op == TileOp::leaky_relu_gradient) {
    point.x = call.attrs.real("alpha");
  } else if (op == TileOp::gelu || op == TileOp::gelu_gradient) {
    point.x = static_cast<double>(call.attrs.integer("approximate", 0));
  } else if (op == TileOp::relu || op == TileOp::relu_gradient) {
    point.clipped = call.attrs.has("most");
    if (point.clipped) point.x = call.attrs.real("most");
  }
  auto body = [&]<class T>() {
    return is_dear(op) ? point_kernel<true, T>(call, point, two)
                       : point_kernel<false, T>(call, point, two);
  };
  if (op == TileOp::add || op == TileOp::subtract || op == TileOp::multiply ||
      op == TileOp::maximum || op == TileOp::minimum || op == TileOp::equal_mask ||
      op == TileOp::greater_mask || op == TileOp::greater_equal_mask ||
      op == TileOp::floor_divide || op == TileOp::mod || op == TileOp::power)
    return dispatch_number(call.in[0].dtype, body);
  return dispatch_real(call.in[0].dtype, body);
}

namespace {

// The same walk by units of 16 bytes; false: its runs are not made of those.
bool by_packs(Walk<1>* walk, int64_t size) {
  const int last = walk->rank - 1;
  const int64_t of_pack = 16 / size;
  if (last < 0 || walk->strides[0][last] != 1 || walk->sizes[last] % of_pack != 0) return false;
  for (int d = 0; d < last; ++d)
    if (walk->strides[0][d] % of_pack != 0) return false;
  for (int d = 0; d < last; ++d) walk->strides[0][d] /= of_pack;
  walk->sizes[last] /= of_pack;
  walk->total /= of_pack;
  return true;
}

}  // namespace

std::unique_ptr<Kernel> broadcast_to(const PrepareCall& call) {
  Walk<1> walk;
  if (!broadcast_walk<1>({&call.in[0].shape}, call.out[0].shape, &walk)) return nullptr;
  if (call.alignment() >= kFullAlignment && by_packs(&walk, size_of(call.in[0].dtype)))
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (walk.total > 0)
        strided_copy<uint4><<<launch.blocks(walk.total, 256), 256, 0, launch.stream>>>(
            input<uint4>(in, 0), output<uint4>(out, 0), walk);
    });
  return dispatch_size(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (walk.total > 0)
        strided_copy<T><<<launch.blocks(walk.total, 256), 256, 0, launch.stream>>>(
            input<T>(in, 0), output<T>(out, 0), walk);
    });
  });
}

namespace {

constexpr int kTile = 32;

// x (batch, columns, rows) to y (batch, rows, columns) by square tiles.
template <class T>
__global__ void transpose_tiles(const T* x, T* y, int64_t rows, int64_t columns, int64_t batch) {
  __shared__ T tile[kTile][kTile + 1];
  const int64_t across = (rows + kTile - 1) / kTile, down = (columns + kTile - 1) / kTile;
  const int64_t tiles = across * down * batch;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t matrix = t / (across * down) * rows * columns;
    const int64_t r = t % across * kTile, c = t / across % down * kTile;
    __syncthreads();
    for (int j = threadIdx.y; j < kTile; j += 8)
      if (c + j < columns && r + threadIdx.x < rows)
        tile[j][threadIdx.x] = x[matrix + (c + j) * rows + r + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.y; j < kTile; j += 8)
      if (r + j < rows && c + threadIdx.x < columns)
        y[matrix + (r + j) * columns + c + threadIdx.x] = tile[threadIdx.x][j];
  }
}

// The same of a single matrix, with a change of dtype.
template <class To, class From>
__global__ void transpose_reals(const From* x, To* y, int64_t rows, int64_t columns) {
  __shared__ float tile[kTile][kTile + 1];
  const int64_t across = (rows + kTile - 1) / kTile, down = (columns + kTile - 1) / kTile;
  for (int64_t t = blockIdx.x; t < across * down; t += gridDim.x) {
    const int64_t r = t % across * kTile, c = t / across * kTile;
    __syncthreads();
    for (int j = threadIdx.y; j < kTile; j += 8)
      if (c + j < columns && r + threadIdx.x < rows)
        tile[j][threadIdx.x] = widen(x[(c + j) * rows + r + threadIdx.x]);
    __syncthreads();
    for (int j = threadIdx.y; j < kTile; j += 8)
      if (r + j < rows && c + threadIdx.x < columns)
        y[(r + j) * columns + c + threadIdx.x] = static_cast<To>(tile[threadIdx.x][j]);
  }
}

}  // namespace

void launch_transpose(Backend& backend, Dtype from, const void* x, Dtype to, void* y, Dim rows,
                      Dim columns) {
  auto& device = static_cast<CudaBackend&>(backend);
  const Launch launch{device.stream(), device.multiprocessors()};
  if (rows * columns == 0) return;
  const unsigned blocks = launch.blocks(rows * columns, kTile * kTile);
  auto go = [&]<class To, class From>() {
    transpose_reals<To, From><<<blocks, dim3(kTile, 8), 0, launch.stream>>>(
        static_cast<const From*>(x), static_cast<To*>(y), columns, rows);
  };
  auto of = [&]<class From>() {
    if (to == Dtype::bfloat16) return go.template operator()<Bf16, From>();
    if (to == Dtype::float16) return go.template operator()<Half, From>();
    go.template operator()<float, From>();
  };
  if (from == Dtype::bfloat16) return of.template operator()<Bf16>();
  if (from == Dtype::float16) return of.template operator()<Half>();
  of.template operator()<float>();
}

std::unique_ptr<Kernel> transpose(const PrepareCall& call) {
  const Shape &x = call.in[0].shape, &y = call.out[0].shape;
  std::vector<int64_t> strides(static_cast<size_t>(x.rank()), 1);
  for (int axis = x.rank() - 2; axis >= 0; --axis)
    strides[static_cast<size_t>(axis)] = strides[static_cast<size_t>(axis) + 1] * x[axis + 1];
  Walk<1> walk;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const auto from = static_cast<size_t>(call.attrs.list("perm")[static_cast<size_t>(axis)]);
    if (!walk.append(y[axis], {strides[from]})) return nullptr;
  }
  const int last = walk.rank - 1;
  const bool tiled = (walk.rank == 2 || walk.rank == 3) && walk.strides[0][last - 1] == 1 &&
                     walk.strides[0][last] == walk.sizes[last - 1] &&
                     (walk.rank == 2 || walk.strides[0][0] == walk.sizes[1] * walk.sizes[2]);
  return dispatch_size(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (walk.total == 0) return;
      if (tiled)
        transpose_tiles<T>
            <<<launch.blocks(walk.total, kTile * kTile), dim3(kTile, 8), 0, launch.stream>>>(
                input<T>(in, 0), output<T>(out, 0), walk.sizes[last - 1], walk.sizes[last],
                walk.rank == 3 ? walk.sizes[0] : 1);
      else
        strided_copy<T><<<launch.blocks(walk.total, 256), 256, 0, launch.stream>>>(
            input<T>(in, 0), output<T>(out, 0), walk);
    });
  });
}

}  // namespace pl::cuda
