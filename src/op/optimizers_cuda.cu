// CUDA kernels of sgd, adam, moving_statistics and constrain. Outputs are usually the inputs' own
// memory.
#include "op/adam.h"
#include "op/cuda/each_of_several-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

template <class Number>
struct SgdUpdate {
  using T = Number;
  static constexpr int kIn = 2, kOut = 1, kParams = 2;
  T rate = T(0);
  bool operator==(const SgdUpdate&) const { return true; }
  __device__ void begin(const StepParams* step) { rate = static_cast<T>(step->learning_rate); }
  __device__ void one(const T (&x)[2], T (&y)[1]) const { y[0] = x[0] - rate * x[1]; }
};

template <class Number>
struct MomentumUpdate {
  using T = Number;
  static constexpr int kIn = 3, kOut = 2, kParams = 3;
  T keep;
  bool nesterov;
  T rate = T(0);
  bool operator==(const MomentumUpdate&) const = default;
  __device__ void begin(const StepParams* step) { rate = static_cast<T>(step->learning_rate); }
  // w, velocity, g to w, velocity.
  __device__ void one(const T (&x)[3], T (&y)[2]) const {
    const T step = rate * x[2], v = keep * x[1] - step;
    y[1] = v;
    y[0] = nesterov ? x[0] + (keep * v - step) : x[0] + v;
  }
};

// Out of the way of the registers that elements need.
__noinline__ __device__ double power_of(double base, double exponent) {
  return pow(base, exponent);
}

template <class Number>
struct AdamUpdate {
  using T = Number;
  static constexpr int kIn = 4, kOut = 3, kParams = 4;
  double beta_1, beta_2;
  T rest_1, rest_2, epsilon, decay;
  T alpha = T(0), rate = T(0);
  bool operator==(const AdamUpdate&) const = default;

  __device__ void begin(const StepParams* step) {
    __shared__ T numbers[2];
    if (threadIdx.x == 0) {
      const auto t = static_cast<double>(step->update > 0 ? step->update : step->step);
      auto power = [&](double beta) {
        return static_cast<T>(power_of(static_cast<double>(static_cast<T>(beta)), t));
      };
      numbers[1] = static_cast<T>(step->learning_rate);
      numbers[0] = numbers[1] * sqrt_of(T(1) - power(beta_2)) / (T(1) - power(beta_1));
    }
    __syncthreads();
    alpha = numbers[0];
    rate = numbers[1];
  }
  // w, m, v, g to w, m, v.
  __device__ void one(const T (&x)[4], T (&y)[3]) const {
    const T weight = x[0], gradient = x[3];
    const T moment = x[1] + (gradient - x[1]) * rest_1;
    const T square = x[2] + (gradient * gradient - x[2]) * rest_2;
    const T kept = decay != T(0) ? weight - weight * decay * rate : weight;
    y[0] = kept - moment * alpha / (sqrt_of(square) + epsilon);
    y[1] = moment;
    y[2] = square;
  }
};

template <class Number>
struct MovingUpdate {
  using T = Number;
  static constexpr int kIn = 4, kOut = 2, kParams = -1;
  T keep, take;
  bool operator==(const MovingUpdate&) const = default;
  __device__ void begin(const StepParams*) {}
  // Two statistics and the batch's.
  __device__ void one(const T (&x)[4], T (&y)[2]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) y[s] = x[s] * keep + x[2 + s] * take;
  }
};

template <class Number>
struct NonNegative {
  using T = Number;
  static constexpr int kIn = 1, kOut = 1, kParams = -1;
  bool operator==(const NonNegative&) const = default;
  __device__ void begin(const StepParams*) {}
  __device__ void one(const T (&x)[1], T (&y)[1]) const { y[0] = x[0] <= T(0) ? T(0) : x[0]; }
};

template <class Update>
std::unique_ptr<Kernel> update_kernel(const PrepareCall& call, const Update& update) {
  return make_each(call, EachUpdate<Update>{update});
}

// w (outer, along, inner): a block for each vector where neighbours lie together, else a thread.
struct ConstrainForm {
  int64_t outer = 1, along = 1, inner = 1;
  double least, most, rate;
  __device__ double factor(double squares) const {
    const double length = sqrt(squares);
    const double clipped = length < least ? least : length > most ? most : length;
    return (rate * clipped + (1 - rate) * length) / (1e-7 + length);
  }
};
template <class T>
__global__ void constrain_vectors(ConstrainForm f, const T* w, T* y) {
  for (int64_t v = thread_index(); v < f.outer * f.inner; v += thread_count()) {
    const int64_t first = v / f.inner * f.along * f.inner + v % f.inner;
    double sum = 0;
    for (int64_t i = 0; i < f.along; ++i) {
      const auto x = static_cast<double>(w[first + i * f.inner]);
      sum += x * x;
    }
    const T factor = static_cast<T>(f.factor(sum));
    for (int64_t i = 0; i < f.along; ++i) y[first + i * f.inner] = w[first + i * f.inner] * factor;
  }
}
template <class T>
__global__ void constrain_runs(ConstrainForm f, const T* w, T* y) {
  __shared__ double shared[32];
  for (int64_t v = blockIdx.x; v < f.outer; v += gridDim.x) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < f.along; i += blockDim.x) {
      const auto x = static_cast<double>(w[v * f.along + i]);
      sum += x * x;
    }
    const T factor = static_cast<T>(f.factor(block_all(sum, 0.0, shared, Plus{})));
    for (int64_t i = threadIdx.x; i < f.along; i += blockDim.x)
      y[v * f.along + i] = w[v * f.along + i] * factor;
  }
}

ConstrainForm constrain_form(const Meta& meta, const Attrs& attrs) {
  const int64_t rank = meta.shape.rank();
  int64_t first = rank, last = -1;
  for (int64_t axis : attrs.list("axes")) {
    first = std::min(first, axis < 0 ? axis + rank : axis);
    last = std::max(last, axis < 0 ? axis + rank : axis);
  }
  ConstrainForm f{.least = attrs.real("least", 0),
                  .most = attrs.real("most", 1),
                  .rate = attrs.real("rate", 1)};
  for (int axis = 0; axis < rank; ++axis)
    (axis < first ? f.outer : axis > last ? f.inner : f.along) *= meta.shape[axis];
  return f;
}

}  // namespace

std::unique_ptr<Kernel> sgd(const PrepareCall& call) {
  return dispatch_variable(call.in[0].dtype,
                           [&]<class T>() { return update_kernel(call, SgdUpdate<T>{}); });
}

std::unique_ptr<Kernel> sgd_momentum(const PrepareCall& call) {
  const bool nesterov = call.attrs.integer("nesterov", 0) != 0;
  const double momentum = call.attrs.real("momentum", 0.9);
  return dispatch_variable(call.in[0].dtype, [&]<class T>() {
    return update_kernel(call, MomentumUpdate<T>{static_cast<T>(momentum), nesterov});
  });
}

std::unique_ptr<Kernel> adam(const PrepareCall& call) {
  const AdamUpdateOptions o = adam_options(call.attrs);
  return dispatch_variable(call.in[0].dtype, [&]<class T>() {
    return update_kernel(call, AdamUpdate<T>{.beta_1 = o.beta_1,
                                             .beta_2 = o.beta_2,
                                             .rest_1 = static_cast<T>(1 - o.beta_1),
                                             .rest_2 = static_cast<T>(1 - o.beta_2),
                                             .epsilon = static_cast<T>(o.epsilon),
                                             .decay = static_cast<T>(o.weight_decay)});
  });
}

std::unique_ptr<Kernel> moving_statistics(const PrepareCall& call) {
  const double momentum = call.attrs.real("momentum");
  return dispatch_variable(call.in[0].dtype, [&]<class T>() {
    return update_kernel(
        call, MovingUpdate<T>{static_cast<T>(momentum), static_cast<T>(1 - momentum)});
  });
}

std::unique_ptr<Kernel> constrain(const PrepareCall& call) {
  const int64_t total = call.in[0].elements();
  return dispatch_variable(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    if (call.attrs.text("kind") == "non_neg") return update_kernel(call, NonNegative<T>{});
    const ConstrainForm f = constrain_form(call.in[0], call.attrs);
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total == 0) return;
      if (f.inner == 1)
        constrain_runs<T><<<launch.blocks(f.outer, 1), 128, 0, launch.stream>>>(f, input<T>(in, 0),
                                                                                output<T>(out, 0));
      else
        constrain_vectors<T><<<launch.blocks(f.outer * f.inner, 128), 128, 0, launch.stream>>>(
            f, input<T>(in, 0), output<T>(out, 0));
    });
  });
}

}  // namespace pl::cuda
