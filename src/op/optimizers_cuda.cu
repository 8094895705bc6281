// CUDA kernels of sgd, adam, moving_statistics and constrain. Outputs are usually the inputs' own
// memory.
#include "op/adam.h"
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

// body(element) for all, `body` also being told that the loop begins.
template <class Body>
__global__ void __launch_bounds__(256) each_weight(Body body, int64_t total) {
  body.begin();
  for (int64_t i = thread_index(); i < total; i += thread_count()) body.run(i);
}
template <class Body>
void launch_weights(const Launch& launch, const Body& body, int64_t total) {
  if (total > 0) each_weight<<<launch.blocks(total, 256), 256, 0, launch.stream>>>(body, total);
}

template <class T>
struct SgdStep {
  const T *w, *g;
  T* next;
  const StepParams* params;
  T rate;
  __device__ void begin() { rate = static_cast<T>(params->learning_rate); }
  __device__ void run(int64_t i) const { next[i] = w[i] - rate * g[i]; }
};

template <class T>
struct MomentumStep {
  const T *w, *velocity, *g;
  T *next, *next_velocity;
  const StepParams* params;
  T keep;
  bool nesterov;
  T rate;
  __device__ void begin() { rate = static_cast<T>(params->learning_rate); }
  __device__ void run(int64_t i) const {
    const T step = rate * g[i], v = keep * velocity[i] - step;
    const T old = w[i];
    next_velocity[i] = v;
    next[i] = nesterov ? old + (keep * v - step) : old + v;
  }
};

template <class T>
struct AdamStep {
  const T *w, *m, *v, *g;
  T *next_w, *next_m, *next_v;
  const StepParams* params;
  double beta_1, beta_2;
  T rest_1, rest_2, epsilon, decay;
  T alpha, rate;

  __device__ void begin() {
    __shared__ T numbers[2];
    if (threadIdx.x == 0) {
      const auto t = static_cast<double>(params->update > 0 ? params->update : params->step);
      auto power = [&](double beta) {
        return static_cast<T>(pow(static_cast<double>(static_cast<T>(beta)), t));
      };
      numbers[1] = static_cast<T>(params->learning_rate);
      numbers[0] = numbers[1] * sqrt_of(T(1) - power(beta_2)) / (T(1) - power(beta_1));
    }
    __syncthreads();
    alpha = numbers[0];
    rate = numbers[1];
  }
  __device__ void one(T& weight, T& moment, T& square, T gradient) const {
    moment = moment + (gradient - moment) * rest_1;
    square = square + (gradient * gradient - square) * rest_2;
    const T kept = decay != T(0) ? weight - weight * decay * rate : weight;
    weight = kept - moment * alpha / (sqrt_of(square) + epsilon);
  }
  // A pack of elements.
  __device__ void run(int64_t i) const {
    constexpr int kSize = Pack<T>::kSize;
    Pack<T> weight = load_pack(w + i * kSize), moment = load_pack(m + i * kSize);
    Pack<T> square = load_pack(v + i * kSize), gradient = load_pack(g + i * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) one(weight.at[j], moment.at[j], square.at[j], gradient.at[j]);
    store_pack(next_m + i * kSize, moment);
    store_pack(next_v + i * kSize, square);
    store_pack(next_w + i * kSize, weight);
  }
};
// What is left behind the last pack.
template <class T>
struct AdamRest {
  AdamStep<T> step;
  int64_t first;
  __device__ void begin() { step.begin(); }
  __device__ void run(int64_t k) const {
    const int64_t i = first + k;
    T weight = step.w[i], moment = step.m[i], square = step.v[i];
    step.one(weight, moment, square, step.g[i]);
    step.next_m[i] = moment;
    step.next_v[i] = square;
    step.next_w[i] = weight;
  }
};

template <class T>
struct MovingStep {
  const T *moving[2], *batch[2];
  T* next[2];
  T keep, take;
  __device__ void begin() {}
  __device__ void run(int64_t i) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) next[s][i] = moving[s][i] * keep + batch[s][i] * take;
  }
};

template <class T>
struct NonNegative {
  const T* w;
  T* y;
  __device__ void begin() {}
  __device__ void run(int64_t i) const { y[i] = w[i] <= T(0) ? T(0) : w[i]; }
};

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
  const int64_t total = call.in[0].elements();
  return dispatch_variable(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      launch_weights(launch,
                     SgdStep<T>{input<T>(in, 0), input<T>(in, 1), output<T>(out, 0),
                                input<StepParams>(in, 2), T(0)},
                     total);
    });
  });
}

std::unique_ptr<Kernel> sgd_momentum(const PrepareCall& call) {
  const int64_t total = call.in[0].elements();
  const bool nesterov = call.attrs.integer("nesterov", 0) != 0;
  const double momentum = call.attrs.real("momentum", 0.9);
  return dispatch_variable(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      launch_weights(launch,
                     MomentumStep<T>{input<T>(in, 0), input<T>(in, 1), input<T>(in, 2),
                                     output<T>(out, 0), output<T>(out, 1), input<StepParams>(in, 3),
                                     static_cast<T>(momentum), nesterov, T(0)},
                     total);
    });
  });
}

std::unique_ptr<Kernel> adam(const PrepareCall& call) {
  const int64_t total = call.in[0].elements();
  const AdamUpdateOptions o = adam_options(call.attrs);
  return dispatch_variable(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      const AdamStep<T> step{.w = input<T>(in, 0),
                             .m = input<T>(in, 1),
                             .v = input<T>(in, 2),
                             .g = input<T>(in, 3),
                             .next_w = output<T>(out, 0),
                             .next_m = output<T>(out, 1),
                             .next_v = output<T>(out, 2),
                             .params = input<StepParams>(in, 4),
                             .beta_1 = o.beta_1,
                             .beta_2 = o.beta_2,
                             .rest_1 = static_cast<T>(1 - o.beta_1),
                             .rest_2 = static_cast<T>(1 - o.beta_2),
                             .epsilon = static_cast<T>(o.epsilon),
                             .decay = static_cast<T>(o.weight_decay),
                             .alpha = T(0),
                             .rate = T(0)};
      const int64_t packs = total / Pack<T>::kSize, done = packs * Pack<T>::kSize;
      launch_weights(launch, step, packs);
      launch_weights(launch, AdamRest<T>{step, done}, total - done);
    });
  });
}

std::unique_ptr<Kernel> moving_statistics(const PrepareCall& call) {
  const int64_t total = call.in[0].elements();
  const double momentum = call.attrs.real("momentum");
  return dispatch_variable(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      launch_weights(launch,
                     MovingStep<T>{{input<T>(in, 0), input<T>(in, 1)},
                                   {input<T>(in, 2), input<T>(in, 3)},
                                   {output<T>(out, 0), output<T>(out, 1)},
                                   static_cast<T>(momentum),
                                   static_cast<T>(1 - momentum)},
                     total);
    });
  });
}

std::unique_ptr<Kernel> constrain(const PrepareCall& call) {
  const int64_t total = call.in[0].elements();
  return dispatch_variable(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    if (call.attrs.text("kind") == "non_neg")
      return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
        launch_weights(launch, NonNegative<T>{input<T>(in, 0), output<T>(out, 0)}, total);
      });
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
