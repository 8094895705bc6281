// CUDA kernels of batch_norm and its gradients: sums over all pixels by columns-inl.cuh, then one
// pass over the elements.
#include "op/channels.h"
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

struct BatchForm {
  int64_t rows, channels;
};
BatchForm batch_form(const PrepareCall& call) {
  const int64_t channels = call.in[0].shape.back();
  return {call.in[0].elements() / channels, channels};
}

// Sums of x and its square, each less the channel's first element, so that nothing cancels.
template <class T>
struct MomentTerm {
  const T* x;
  int64_t channels;
  template <int N>
  struct Lane {
    Wide<T> base[N];
    __device__ Lane(const MomentTerm& t, int64_t column) { load_wide<N>(t.x + column, base); }
    template <class A>
    __device__ void add(const MomentTerm& t, int64_t row, int64_t column, A (&sums)[2][N]) const {
      Wide<T> v[N];
      load_wide<N>(t.x + row * t.channels + column, v);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const Wide<T> apart = v[j] - base[j];
        sums[0][j] += apart;
        sums[1][j] += apart * apart;
      }
    }
  };
};
template <class T>
struct MomentEnd {
  const T* x;
  Wide<T>*mean, *variance;
  double share;
  __device__ void operator()(int64_t, int64_t c, const double (&sums)[2]) const {
    const double apart = sums[0] * share;
    mean[c] = static_cast<Wide<T>>(static_cast<double>(widen(x[c])) + apart);
    const double spread = sums[1] * share - apart * apart;
    variance[c] = static_cast<Wide<T>>(spread < 0 ? 0.0 : spread);
  }
};

template <class T>
struct Normalise {
  const T *x, *added;  // added may be null
  const Wide<T>*mean, *variance, *gamma, *beta;
  T* y;
  Wide<T> epsilon, most;  // most: NaN where there is no bound
  bool relu;

  // What a thread keeps of its channels.
  template <int N>
  struct Lane {
    Wide<T> mean[N], factor[N], beta[N];
    __device__ Lane(const Normalise& n, int64_t c) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        mean[j] = n.mean[c + j];
        factor[j] = n.gamma[c + j] * rsqrt_of(n.variance[c + j] + n.epsilon);
        beta[j] = n.beta[c + j];
      }
    }
    __device__ void run(const Normalise& n, int64_t at) const {
      using W = Wide<T>;
      W v[N], more[N];
      load_wide<N>(n.x + at, v);
      if (n.added) load_wide<N>(n.added + at, more);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        W value = (v[j] - mean[j]) * factor[j] + beta[j];
        if (n.added) value += more[j];
        if (n.relu) value = value <= W(0) ? W(0) : value >= n.most ? n.most : value;
        v[j] = value;
      }
      store_narrow<N>(n.y + at, v);
    }
  };
};

// Which relu stands behind, whose gradient is taken along.
enum class Masked : uint8_t { none, by_x, by_y };

template <class T>
struct BatchGradient {
  const T *x, *dy, *y;
  const Wide<T>*mean, *variance, *gamma, *beta;
  T *dx, *masked;
  const Wide<T>* sums;  // (2, C): averages of g and of g * (x - mean) / (variance + epsilon)
  Wide<T> epsilon, most;
  Masked mask;
  int64_t channels;

  // What a thread keeps of its channels.
  template <int N>
  struct Lane {
    Wide<T> mean[N], factor[N], beta[N], flat[N], slope[N];
    __device__ Lane(const BatchGradient& b, int64_t c) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        mean[j] = b.mean[c + j];
        factor[j] = b.gamma[c + j] * rsqrt_of(b.variance[c + j] + b.epsilon);
        beta[j] = b.mask == Masked::by_x ? b.beta[c + j] : Wide<T>(0);
        // Behind the sums; while these are made, `sums` is null.
        flat[j] = b.sums ? b.sums[c + j] : Wide<T>(0);
        slope[j] = b.sums ? b.sums[b.channels + c + j] : Wide<T>(0);
      }
    }
    // g: dy where the relu let through; `apart` is x - mean.
    __device__ void gradients(const BatchGradient& b, int64_t at, Wide<T> (&apart)[N],
                              Wide<T> (&g)[N]) const {
      using W = Wide<T>;
      W signs[N];
      load_wide<N>(b.x + at, apart);
      load_wide<N>(b.dy + at, g);
      if (b.mask == Masked::by_y) load_wide<N>(b.y + at, signs);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        apart[j] -= mean[j];
        if (b.mask == Masked::none) continue;
        const W value = b.mask == Masked::by_y ? signs[j] : apart[j] * factor[j] + beta[j];
        if (!(value > W(0) && !(value >= b.most))) g[j] = W(0);
      }
    }
    // Where g is a result it is written here, so that what decides it is read once.
    template <class A>
    __device__ void add(const BatchGradient& b, int64_t row, int64_t c, A (&totals)[2][N]) const {
      Wide<T> apart[N], g[N];
      gradients(b, row * b.channels + c, apart, g);
      if (b.masked) store_narrow<N>(b.masked + row * b.channels + c, g);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        totals[0][j] += g[j];
        totals[1][j] += g[j] * apart[j];
      }
    }
    __device__ void run(const BatchGradient& b, int64_t at) const {
      Wide<T> apart[N], g[N], result[N];
      gradients(b, at, apart, g);
#pragma unroll
      for (int j = 0; j < N; ++j) result[j] = factor[j] * (g[j] - flat[j] - apart[j] * slope[j]);
      store_narrow<N>(b.dx + at, result);
    }
  };
};
template <class W>
struct BatchGradientEnd {
  const W* variance;
  W *dgamma, *dbeta, *sums;
  W epsilon;
  int64_t channels;
  double share;
  __device__ void operator()(int64_t, int64_t c, const double (&totals)[2]) const {
    const double inverse = static_cast<double>(rsqrt_of(variance[c] + epsilon));
    dbeta[c] = static_cast<W>(totals[0]);
    dgamma[c] = static_cast<W>(totals[1] * inverse);
    sums[c] = static_cast<W>(totals[0] * share);
    sums[channels + c] = static_cast<W>(totals[1] * inverse * inverse * share);
  }
};

// All elements; a thread keeps to its channels, `across` threads have neighbouring ones.
template <int N, class Body>
__global__ void each_channel_row(Body body, BatchForm f, int across) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * across + threadIdx.x % across) * N;
  if (column >= f.channels) return;
  const int down = kColumnThreads / across;
  const typename Body::template Lane<N> lane(body, column);
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * down + threadIdx.x / across; row < f.rows;
       row += static_cast<int64_t>(gridDim.y) * down)
    lane.run(body, row * f.channels + column);
}
template <class T, class Body>
void launch_channels(const Launch& launch, const BatchForm& f, const Body& body) {
  constexpr int kSize = Pack<T>::kSize;
  if (f.rows * f.channels == 0) return;
  const ColumnPlan plan = column_plan(1, f.rows, f.channels, kSize, launch.processors, 2);
  const int64_t down = kColumnThreads / plan.across;
  auto* kernel = plan.width == kSize ? each_channel_row<kSize, Body> : each_channel_row<1, Body>;
  int resident = 1;  // blocks of a processor: all run at once, and none is left for a last round
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kColumnThreads, 0);
  const int64_t most = std::max<int64_t>(1, int64_t{launch.processors} * resident / plan.blocks);
  const dim3 grid(static_cast<unsigned>(plan.blocks),
                  static_cast<unsigned>(std::min((f.rows + down - 1) / down, most)));
  kernel<<<grid, kColumnThreads, 0, launch.stream>>>(body, f, plan.across);
}

template <class T>
void launch_moments(const Launch& launch, const BatchForm& f, const ColumnPlan& plan, const T* x,
                    Wide<T>* mean, Wide<T>* variance, char* workspace) {
  sum_columns<2, Pack<T>::kSize, Wide<T>>(
      launch, plan, MomentTerm<T>{x, f.channels},
      MomentEnd<T>{x, mean, variance, 1 / static_cast<double>(f.rows)}, workspace);
}

ColumnPlan batch_plan(const PrepareCall& call, int pack) {
  const BatchForm f = batch_form(call);
  return column_plan(1, f.rows, f.channels, pack, backend_of(call).multiprocessors(), 2);
}

std::unique_ptr<Kernel> batch_gradient(const PrepareCall& call, Masked mask) {
  const BatchForm f = batch_form(call);
  const double epsilon = call.attrs.real("epsilon"), most = cpu::clip_of(call.attrs);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    const ColumnPlan plan = batch_plan(call, Pack<T>::kSize);
    const Bytes parts = align_up(plan.bytes(2, sizeof(W)), 256);
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          W* sums = reinterpret_cast<W*>(workspace + parts);
          BatchGradient<T> body{.x = input<T>(in, 0),
                                .dy = input<T>(in, 4),
                                .y = mask == Masked::by_y ? input<T>(in, 5) : nullptr,
                                .mean = input<W>(in, 1),
                                .variance = input<W>(in, 2),
                                .gamma = input<W>(in, 3),
                                .beta = mask == Masked::by_x ? input<W>(in, 5) : nullptr,
                                .dx = output<T>(out, 0),
                                .masked = mask == Masked::by_y ? output<T>(out, 3) : nullptr,
                                .sums = nullptr,
                                .epsilon = static_cast<W>(epsilon),
                                .most = static_cast<W>(most),
                                .mask = mask,
                                .channels = f.channels};
          sum_columns<2, Pack<T>::kSize, W>(
              launch, plan, body,
              BatchGradientEnd<W>{body.variance, output<W>(out, 1), output<W>(out, 2), sums,
                                  body.epsilon, f.channels, 1 / static_cast<double>(f.rows)},
              workspace);
          body.sums = sums;
          if (body.masked) {  // g is there now, perhaps where dy or y was
            body.dy = body.masked;
            body.mask = Masked::none;
          }
          launch_channels<T>(launch, f, body);
        },
        parts + 2 * f.channels * static_cast<Bytes>(sizeof(W)));
  });
}

}  // namespace

std::unique_ptr<Kernel> batch_moments(const PrepareCall& call) {
  const BatchForm f = batch_form(call);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    const ColumnPlan plan = batch_plan(call, Pack<T>::kSize);
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          launch_moments<T>(launch, f, plan, input<T>(in, 0), output<W>(out, 0), output<W>(out, 1),
                            workspace);
        },
        plan.bytes(2, sizeof(W)));
  });
}

std::unique_ptr<Kernel> batch_norm_apply(const PrepareCall& call) {
  const BatchForm f = batch_form(call);
  const double epsilon = call.attrs.real("epsilon"), most = cpu::clip_of(call.attrs);
  const bool relu = call.attrs.has("activation"), adds = call.in.size() > 5;
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      launch_channels<T>(launch, f,
                         Normalise<T>{.x = input<T>(in, 0),
                                      .added = adds ? input<T>(in, 5) : nullptr,
                                      .mean = input<W>(in, 1),
                                      .variance = input<W>(in, 2),
                                      .gamma = input<W>(in, 3),
                                      .beta = input<W>(in, 4),
                                      .y = output<T>(out, 0),
                                      .epsilon = static_cast<W>(epsilon),
                                      .most = static_cast<W>(most),
                                      .relu = relu});
    });
  });
}

std::unique_ptr<Kernel> batch_norm(const PrepareCall& call) {
  const BatchForm f = batch_form(call);
  const double epsilon = call.attrs.real("epsilon");
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    const ColumnPlan plan = batch_plan(call, Pack<T>::kSize);
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          launch_moments<T>(launch, f, plan, input<T>(in, 0), output<W>(out, 1), output<W>(out, 2),
                            workspace);
          launch_channels<T>(launch, f,
                             Normalise<T>{.x = input<T>(in, 0),
                                          .added = nullptr,
                                          .mean = output<W>(out, 1),
                                          .variance = output<W>(out, 2),
                                          .gamma = input<W>(in, 1),
                                          .beta = input<W>(in, 2),
                                          .y = output<T>(out, 0),
                                          .epsilon = static_cast<W>(epsilon),
                                          .most = W(0),
                                          .relu = false});
        },
        plan.bytes(2, sizeof(W)));
  });
}

std::unique_ptr<Kernel> batch_norm_gradient(const PrepareCall& call) {
  return batch_gradient(call, Masked::none);
}
std::unique_ptr<Kernel> batch_norm_relu_gradient(const PrepareCall& call) {
  return batch_gradient(call, Masked::by_x);
}
std::unique_ptr<Kernel> batch_norm_add_relu_gradient(const PrepareCall& call) {
  return batch_gradient(call, Masked::by_y);
}

}  // namespace pl::cuda
