// CUDA kernels of the recurrent ops: a block for each sample takes it through all steps, states in
// shared memory, weights from the second cache.
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/gru.h"
#include "op/lstm.h"
#include "op/recurrent_weight_gradient.h"
#include "op/simple_rnn.h"

namespace pl::cuda {
namespace {

template <class W>
__device__ W squash_of(Squash kind, W x) {
  switch (kind) {
    case Squash::tanh:
      return tanh_of(x);
    case Squash::sigmoid: {
      const W e = exp_of(-abs_of(x));
      return (x >= W(0) ? W(1) : e) / (W(1) + e);
    }
    case Squash::relu:
      return x <= W(0) ? W(0) : x;
    case Squash::hard_sigmoid: {
      const W y = (x + W(3)) / W(6);
      return y <= W(0) ? W(0) : y >= W(1) ? W(1) : y;
    }
    default:
      return x;
  }
}
template <class W>
__device__ W squash_slope_of(Squash kind, W y) {
  switch (kind) {
    case Squash::tanh:
      return W(1) - y * y;
    case Squash::sigmoid:
      return y * (W(1) - y);
    case Squash::relu:
      return y > W(0) ? W(1) : W(0);
    case Squash::hard_sigmoid:
      return y > W(0) && y < W(1) ? W(1) / W(6) : W(0);
    default:
      return W(1);
  }
}

// Numbers from one state in shared memory to the next: the compiler reads a few beyond a vector's
// end ahead of time, which must be neither another's nor outside.
__host__ __device__ inline int64_t padded(const RecurrentForm& f) { return f.units + 32; }

constexpr int kMostOperands = 12, kMostOutputs = 5;
struct RecurrentArgs {
  const void* in[kMostOperands];
  void* out[kMostOutputs];
};

// One sample's part of operands and outputs; null where one is absent.
template <class T>
struct SamplePart {
  const RecurrentForm& f;
  const RecurrentArgs& args;
  int64_t b;
  __device__ const T* in(int at, int64_t size) const {
    return at < 0 ? nullptr : static_cast<const T*>(args.in[at]) + b * size;
  }
  __device__ const T* steps(int at, int factor = 1) const {
    return in(at, f.steps * factor * f.units);
  }
  __device__ const T* state(int at, int factor = 1) const { return in(at, factor * f.units); }
  __device__ T* out(int at, int64_t size) const { return static_cast<T*>(args.out[at]) + b * size; }
  __device__ T* out_steps(int at, int factor = 1) const {
    return out(at, f.steps * factor * f.units);
  }
  __device__ T* out_state(int at) const { return out(at, f.units); }
  __device__ bool runs(int64_t t) const {
    return f.mask < 0 || static_cast<const uint8_t*>(args.in[f.mask])[b * f.steps + t] != 0;
  }
  __device__ int64_t input_at(int64_t s) const { return f.backwards ? f.steps - 1 - s : s; }
  __device__ int64_t output_at(int64_t s) const {
    return f.backwards && !f.flip ? f.steps - 1 - s : s;
  }
  __device__ Wide<T> number(const T* from, int64_t i) const {
    return from ? widen(from[i]) : Wide<T>(0);
  }
};

// Column j of gate g: the state, `factors` of it or not, times the weights.
template <int kGates, class T>
__device__ Wide<T> times_column(const Wide<T>* state, const T* factors, const T* u, int64_t units,
                                int g, int64_t j) {
  Wide<T> sum = 0;
  for (int64_t k = 0; k < units; ++k) {
    const Wide<T> left = factors ? state[k] * widen(factors[g * units + k]) : state[k];
    sum += left * widen(u[(k * kGates + g) * units + j]);
  }
  return sum;
}
// Row k of gate g's weights times `values`, by a warp.
template <int kGates, class T>
__device__ Wide<T> times_row(const Wide<T>* values, const T* u, int64_t units, int g, int64_t k) {
  Wide<T> sum = 0;
  const T* row = u + (k * kGates + g) * units;
  for (int64_t j = threadIdx.x % 32; j < units; j += 32) sum += values[j] * widen(row[j]);
  return warp_all(sum, Plus{});
}

#define PL_EACH_UNIT(j) for (int64_t j = threadIdx.x; j < f.units; j += blockDim.x)

template <class T>
__global__ void lstm_samples(RecurrentForm f, RecurrentArgs args) {
  using W = Wide<T>;
  extern __shared__ double memory[];
  W *h = reinterpret_cast<W*>(memory), *c = h + padded(f), *next = c + padded(f);
  const T* u = static_cast<const T*>(args.in[1]);
  for (int64_t b = blockIdx.x; b < f.batch; b += gridDim.x) {
    const SamplePart<T> p{f, args, b};
    const T *z = p.steps(0, 4), *h0 = p.state(f.h0), *c0 = p.state(f.c0);
    const T* dropped = p.state(f.dropped, 4);
    T *hs = p.out_steps(0), *gates = p.out_steps(1, 4), *cs = p.out_steps(2);
    __syncthreads();
    PL_EACH_UNIT(j) {
      h[j] = p.number(h0, j);
      c[j] = p.number(c0, j);
    }
    __syncthreads();
    for (int64_t s = 0; s < f.steps; ++s) {
      const int64_t t = p.input_at(s), to = p.output_at(s) * f.units, at = t * 4 * f.units;
      const bool runs = p.runs(t);
      PL_EACH_UNIT(j) {
        W gate[4] = {};
        next[j] = h[j];
        if (runs) {
          for (int g = 0; g < 4; ++g)
            gate[g] = squash_of(
                g == 2 ? f.activation : f.recurrent_activation,
                widen(z[at + g * f.units + j]) + times_column<4>(h, dropped, u, f.units, g, j));
          c[j] = gate[1] * c[j] + gate[0] * gate[2];
          next[j] = gate[3] * squash_of(f.activation, c[j]);
        }
        for (int g = 0; g < 4; ++g) gates[at + g * f.units + j] = static_cast<T>(gate[g]);
        hs[to + j] = static_cast<T>(next[j]);
        cs[to + j] = static_cast<T>(c[j]);
      }
      __syncthreads();
      W* const other = h;
      h = next;
      next = other;
    }
    PL_EACH_UNIT(j) {
      p.out_state(3)[j] = static_cast<T>(h[j]);
      p.out_state(4)[j] = static_cast<T>(c[j]);
    }
  }
}

template <class T>
__global__ void lstm_gradient_samples(RecurrentForm f, RecurrentArgs args) {
  using W = Wide<T>;
  extern __shared__ double memory[];
  W *dh = reinterpret_cast<W*>(memory), *dc = dh + padded(f), *step = dc + padded(f);
  const T* u = static_cast<const T*>(args.in[2]);
  for (int64_t b = blockIdx.x; b < f.batch; b += gridDim.x) {
    const SamplePart<T> p{f, args, b};
    const T *gates = p.steps(0, 4), *cs = p.steps(1), *c0 = p.state(f.c0);
    const T *dropped = p.state(f.dropped, 4), *dhs = p.steps(f.dh), *dcs = p.steps(f.dcells);
    const T* dgates = p.steps(f.dgates, 4);
    T* dz = p.out_steps(0, 4);
    __syncthreads();
    PL_EACH_UNIT(j) {
      dh[j] = p.number(p.state(f.dlast_h), j);
      dc[j] = p.number(p.state(f.dlast_c), j);
    }
    __syncthreads();
    for (int64_t s = f.steps - 1; s >= 0; --s) {
      const int64_t t = p.input_at(s), at = p.output_at(s) * f.units, from = t * 4 * f.units;
      const T* c_old = s > 0 ? cs + p.output_at(s - 1) * f.units : c0;
      const bool runs = p.runs(t);
      PL_EACH_UNIT(j) {
        dh[j] += p.number(dhs, at + j);
        dc[j] += p.number(dcs, at + j);
        W d[4] = {};
        if (runs) {
          W gate[4], more[4];
          for (int g = 0; g < 4; ++g) {
            gate[g] = widen(gates[from + g * f.units + j]);
            more[g] = p.number(dgates, from + g * f.units + j);
          }
          auto slope = [&](int g) { return squash_slope_of(f.recurrent_activation, gate[g]); };
          const W y = squash_of(f.activation, widen(cs[at + j]));
          const W cell = dc[j] + dh[j] * gate[3] * squash_slope_of(f.activation, y);
          d[0] = (cell * gate[2] + more[0]) * slope(0);
          d[1] = (cell * p.number(c_old, j) + more[1]) * slope(1);
          d[2] = (cell * gate[0] + more[2]) * squash_slope_of(f.activation, gate[2]);
          d[3] = (dh[j] * y + more[3]) * slope(3);
          dc[j] = cell * gate[1];
        }
        for (int g = 0; g < 4; ++g) {
          step[g * f.units + j] = d[g];
          dz[from + g * f.units + j] = static_cast<T>(d[g]);
        }
      }
      __syncthreads();
      if (runs)
        for (int64_t k = threadIdx.x / 32; k < f.units; k += blockDim.x / 32) {
          W sum = 0;
          for (int g = 0; g < 4; ++g) {
            const W part = times_row<4>(step + g * f.units, u, f.units, g, k);
            sum += dropped ? widen(dropped[g * f.units + k]) * part : part;
          }
          if (threadIdx.x % 32 == 0) dh[k] = sum;
        }
      __syncthreads();
    }
    PL_EACH_UNIT(j) {
      p.out_state(1)[j] = static_cast<T>(dh[j]);
      p.out_state(2)[j] = static_cast<T>(dc[j]);
    }
  }
}

template <class T>
__global__ void gru_samples(RecurrentForm f, RecurrentArgs args) {
  using W = Wide<T>;
  extern __shared__ double memory[];
  W *h = reinterpret_cast<W*>(memory), *inside = h + padded(f), *next = inside + padded(f);
  const T* u = static_cast<const T*>(args.in[1]);
  const W* bias = f.bias < 0 ? nullptr : static_cast<const W*>(args.in[f.bias]);
  for (int64_t b = blockIdx.x; b < f.batch; b += gridDim.x) {
    const SamplePart<T> p{f, args, b};
    const T *z = p.steps(0, 3), *dropped = p.state(f.dropped, 3);
    T *hs = p.out_steps(0), *gates = p.out_steps(1, 3), *inner = p.out_steps(2);
    __syncthreads();
    PL_EACH_UNIT(j) h[j] = p.number(p.state(f.h0), j);
    __syncthreads();
    for (int64_t s = 0; s < f.steps; ++s) {
      const int64_t t = p.input_at(s), to = p.output_at(s) * f.units, at = t * 3 * f.units;
      const bool runs = p.runs(t);
      auto product = [&](int g, const W* state, const T* factors, int64_t j) {
        return (bias ? bias[g * f.units + j] : W(0)) +
               times_column<3>(state, factors, u, f.units, g, j);
      };
      // The gates go through `next` (update) and `inside` (reset, then what it gives).
      PL_EACH_UNIT(j) {
        W gate[2] = {};
        for (int g = 0; runs && g < 2; ++g)
          gate[g] = squash_of(f.recurrent_activation,
                              widen(z[at + g * f.units + j]) + product(g, h, dropped, j));
        next[j] = gate[0];
        inside[j] = gate[1];
        if (runs && !f.reset_after)
          inside[j] = gate[1] * (dropped ? h[j] * widen(dropped[2 * f.units + j]) : h[j]);
        gates[at + j] = static_cast<T>(gate[0]);
        gates[at + f.units + j] = static_cast<T>(gate[1]);
      }
      __syncthreads();
      PL_EACH_UNIT(j) {
        W y = 0, given = 0;
        if (runs) {
          const W sum = f.reset_after ? product(2, h, dropped, j)
                                      : product(2, inside, static_cast<const T*>(nullptr), j);
          given = f.reset_after ? sum : inside[j];
          const W candidate = f.reset_after ? inside[j] * sum : sum;
          y = squash_of(f.activation, widen(z[at + 2 * f.units + j]) + candidate);
          next[j] = next[j] * h[j] + (W(1) - next[j]) * y;
        } else {
          next[j] = h[j];
        }
        gates[at + 2 * f.units + j] = static_cast<T>(y);
        inner[t * f.units + j] = static_cast<T>(given);
        hs[to + j] = static_cast<T>(next[j]);
      }
      __syncthreads();
      W* const other = h;
      h = next;
      next = other;
    }
    PL_EACH_UNIT(j) p.out_state(3)[j] = static_cast<T>(h[j]);
  }
}

template <class T>
__global__ void gru_gradient_samples(RecurrentForm f, RecurrentArgs args) {
  using W = Wide<T>;
  extern __shared__ double memory[];
  W *dh = reinterpret_cast<W*>(memory), *sum = dh + padded(f), *step = sum + padded(f);
  W *dn = step + 3 * padded(f), *back = dn + padded(f);
  const T* u = static_cast<const T*>(args.in[3]);
  const int64_t units = f.units;
  for (int64_t b = blockIdx.x; b < f.batch; b += gridDim.x) {
    const SamplePart<T> p{f, args, b};
    const T *gates = p.steps(0, 3), *inner = p.steps(1), *hs = p.steps(2);
    const T *h0 = p.state(f.h0), *dropped = p.state(f.dropped, 3), *dhs = p.steps(f.dh);
    const T *dgates = p.steps(f.dgates, 3), *dinner = p.steps(f.dcells);
    T *dz = p.out_steps(0, 3), *dns = p.out_steps(1);
    auto factor = [&](int g, int64_t k) { return dropped ? widen(dropped[g * units + k]) : W(1); };
    __syncthreads();
    PL_EACH_UNIT(j) dh[j] = p.number(p.state(f.dlast_h), j);
    __syncthreads();
    for (int64_t s = f.steps - 1; s >= 0; --s) {
      const int64_t t = p.input_at(s), at = p.output_at(s) * units, from = t * 3 * units;
      const T* old = s > 0 ? hs + p.output_at(s - 1) * units : h0;
      const bool runs = p.runs(t);
      PL_EACH_UNIT(j) {
        dh[j] += p.number(dhs, at + j);
        if (!runs) continue;
        const W update = widen(gates[from + j]), y = widen(gates[from + 2 * units + j]);
        const W dy = dh[j] * (W(1) - update) + p.number(dgates, from + 2 * units + j);
        step[2 * units + j] = dy * squash_slope_of(f.activation, y);
        step[j] = (dh[j] * (p.number(old, j) - y) + p.number(dgates, from + j)) *
                  squash_slope_of(f.recurrent_activation, update);
        sum[j] = dh[j] * update;
      }
      __syncthreads();
      if (runs && !f.reset_after) {
        for (int64_t k = threadIdx.x / 32; k < units; k += blockDim.x / 32) {
          const W part = times_row<3>(step + 2 * units, u, units, 2, k);
          if (threadIdx.x % 32 == 0) back[k] = part;
        }
        __syncthreads();
      }
      PL_EACH_UNIT(j) {
        if (!runs) continue;
        const W reset = widen(gates[from + units + j]), slope = step[2 * units + j];
        W dreset = p.number(dgates, from + units + j);
        const W more = p.number(dinner, t * units + j);
        if (f.reset_after) {
          dn[j] = slope * reset + more;
          dreset += slope * widen(inner[t * units + j]);
        } else {
          dn[j] = slope;
          const W given = back[j] + more;
          dreset += given * p.number(old, j) * factor(2, j);
          sum[j] += given * reset * factor(2, j);
        }
        step[units + j] = dreset * squash_slope_of(f.recurrent_activation, reset);
      }
      __syncthreads();
      PL_EACH_UNIT(j) {
        for (int g = 0; g < 3; ++g)
          dz[from + g * units + j] = static_cast<T>(runs ? step[g * units + j] : W(0));
        dns[t * units + j] = static_cast<T>(runs ? dn[j] : W(0));
      }
      if (runs)
        for (int64_t k = threadIdx.x / 32; k < units; k += blockDim.x / 32) {
          W total = factor(0, k) * times_row<3>(step, u, units, 0, k) +
                    factor(1, k) * times_row<3>(step + units, u, units, 1, k);
          if (f.reset_after) total += factor(2, k) * times_row<3>(dn, u, units, 2, k);
          if (threadIdx.x % 32 == 0) dh[k] = sum[k] + total;
        }
      __syncthreads();
    }
    PL_EACH_UNIT(j) p.out_state(2)[j] = static_cast<T>(dh[j]);
  }
}

template <class T>
__global__ void simple_rnn_samples(RecurrentForm f, RecurrentArgs args) {
  using W = Wide<T>;
  extern __shared__ double memory[];
  W *h = reinterpret_cast<W*>(memory), *next = h + padded(f);
  const T* u = static_cast<const T*>(args.in[1]);
  for (int64_t b = blockIdx.x; b < f.batch; b += gridDim.x) {
    const SamplePart<T> p{f, args, b};
    const T *z = p.steps(0), *dropped = p.state(f.dropped);
    T* hs = p.out_steps(0);
    __syncthreads();
    PL_EACH_UNIT(j) h[j] = p.number(p.state(f.h0), j);
    __syncthreads();
    for (int64_t s = 0; s < f.steps; ++s) {
      const int64_t t = p.input_at(s), to = p.output_at(s) * f.units;
      const bool runs = p.runs(t);
      PL_EACH_UNIT(j) {
        next[j] = runs ? squash_of(f.activation, widen(z[t * f.units + j]) +
                                                     times_column<1>(h, dropped, u, f.units, 0, j))
                       : h[j];
        hs[to + j] = static_cast<T>(next[j]);
      }
      __syncthreads();
      W* const other = h;
      h = next;
      next = other;
    }
    PL_EACH_UNIT(j) p.out_state(1)[j] = static_cast<T>(h[j]);
  }
}

template <class T>
__global__ void simple_rnn_gradient_samples(RecurrentForm f, RecurrentArgs args) {
  using W = Wide<T>;
  extern __shared__ double memory[];
  W *dh = reinterpret_cast<W*>(memory), *step = dh + padded(f);
  const T* u = static_cast<const T*>(args.in[1]);
  for (int64_t b = blockIdx.x; b < f.batch; b += gridDim.x) {
    const SamplePart<T> p{f, args, b};
    const T *hs = p.steps(0), *dropped = p.state(f.dropped), *dhs = p.steps(f.dh);
    T* dz = p.out_steps(0);
    __syncthreads();
    PL_EACH_UNIT(j) dh[j] = p.number(p.state(f.dlast_h), j);
    __syncthreads();
    for (int64_t s = f.steps - 1; s >= 0; --s) {
      const int64_t t = p.input_at(s), at = p.output_at(s) * f.units;
      const bool runs = p.runs(t);
      PL_EACH_UNIT(j) {
        dh[j] += p.number(dhs, at + j);
        step[j] = runs ? dh[j] * squash_slope_of(f.activation, widen(hs[at + j])) : W(0);
        dz[t * f.units + j] = static_cast<T>(step[j]);
      }
      __syncthreads();
      if (runs)
        for (int64_t k = threadIdx.x / 32; k < f.units; k += blockDim.x / 32) {
          const W sum = times_row<1>(step, u, f.units, 0, k);
          if (threadIdx.x % 32 == 0) dh[k] = dropped ? widen(dropped[k]) * sum : sum;
        }
      __syncthreads();
    }
    PL_EACH_UNIT(j) p.out_state(1)[j] = static_cast<T>(dh[j]);
  }
}

#undef PL_EACH_UNIT

// `states`: numbers for each unit in shared memory. kernel.template operator()<T>() is the kernel.
template <class Pick>
std::unique_ptr<Kernel> recurrent_kernel(const PrepareCall& call, const RecurrentForm& f,
                                         int states, Pick pick) {
  const size_t operands = call.in.size(), outputs = call.out.size();
  if (operands > kMostOperands) return nullptr;
  return dispatch_real(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    const int64_t bytes = states * padded(f) * static_cast<int64_t>(sizeof(Wide<T>));
    auto* kernel = pick.template operator()<T>();
    if (bytes > shared_room(backend_of(call), reinterpret_cast<const void*>(kernel))) return nullptr;
    const auto threads =
        static_cast<unsigned>(std::clamp<int64_t>((f.units + 31) / 32 * 32, 32, 512));
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (f.batch * f.units == 0) return;
      RecurrentArgs args{};
      for (size_t i = 0; i < operands; ++i) args.in[i] = in[i];
      for (size_t o = 0; o < outputs; ++o) args.out[o] = out[o];
      kernel<<<launch.blocks(f.batch, 1), threads, static_cast<size_t>(bytes), launch.stream>>>(
          f, args);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> lstm(const PrepareCall& call) {
  return recurrent_kernel(call, cpu::lstm_form(call), 3,
                          [&]<class T>() { return &lstm_samples<T>; });
}
std::unique_ptr<Kernel> lstm_gradient(const PrepareCall& call) {
  return recurrent_kernel(call, cpu::lstm_gradient_form(call), 6,
                          [&]<class T>() { return &lstm_gradient_samples<T>; });
}
std::unique_ptr<Kernel> gru(const PrepareCall& call) {
  return recurrent_kernel(call, cpu::gru_form(call), 3, [&]<class T>() { return &gru_samples<T>; });
}
std::unique_ptr<Kernel> gru_gradient(const PrepareCall& call) {
  return recurrent_kernel(call, cpu::gru_gradient_form(call), 7,
                          [&]<class T>() { return &gru_gradient_samples<T>; });
}
std::unique_ptr<Kernel> simple_rnn(const PrepareCall& call) {
  return recurrent_kernel(call, cpu::simple_rnn_form(call), 2,
                          [&]<class T>() { return &simple_rnn_samples<T>; });
}
std::unique_ptr<Kernel> simple_rnn_gradient(const PrepareCall& call) {
  return recurrent_kernel(call, cpu::simple_rnn_gradient_form(call), 2,
                          [&]<class T>() { return &simple_rnn_gradient_samples<T>; });
}

namespace {

struct WeightSumForm {
  int64_t batch, steps, units, columns, width;
  bool backwards, flip;
};

// A thread for each weight, over samples and steps in order.
template <class T, class Out>
__global__ void recurrent_weight_sums(WeightSumForm f, const T* h, const T* dz, const T* h0,
                                      const T* dropped, Out* dw) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < f.units * f.columns; i += thread_count()) {
    const int64_t k = i / f.columns, j = i % f.columns;
    W sum = 0;
    for (int64_t b = 0; b < f.batch; ++b) {
      const W factor =
          dropped ? widen(dropped[(b * f.columns / f.units + j / f.units) * f.units + k]) : W(1);
      for (int64_t s = 0; s < f.steps; ++s) {
        const int64_t t = f.backwards ? f.steps - 1 - s : s;
        const int64_t before = f.backwards && !f.flip ? f.steps - s : s - 1;
        const T* state = s > 0 ? h + (b * f.steps + before) * f.units
                         : h0  ? h0 + b * f.units
                               : nullptr;
        if (state) sum += widen(state[k]) * factor * widen(dz[(b * f.steps + t) * f.width + j]);
      }
    }
    dw[i] = static_cast<Out>(static_cast<Wide<Out>>(sum));
  }
}

template <class T, class Out>
std::unique_ptr<Kernel> weight_sum_kernel(const PrepareCall& call) {
  OptionalOperands more(call.attrs, 2);
  const int h0 = more.take("h0"), dropped = more.take("dropped");
  const Shape& h = call.in[0].shape;
  const WeightSumForm f{h[0],
                        h[1],
                        h[2],
                        call.out[0].shape[1],
                        call.in[1].shape[2],
                        call.attrs.integer("backwards", 0) != 0,
                        call.attrs.integer("flip", 0) != 0};
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (f.units * f.columns > 0)
      recurrent_weight_sums<T, Out>
          <<<launch.blocks(f.units * f.columns, 128), 128, 0, launch.stream>>>(
              f, input<T>(in, 0), input<T>(in, 1), input<T>(in, h0), input<T>(in, dropped),
              output<Out>(out, 0));
  });
}

}  // namespace

std::unique_ptr<Kernel> recurrent_weight_gradient(const PrepareCall& call) {
  return dispatch_real(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    if (call.out[0].dtype != call.in[0].dtype) return weight_sum_kernel<T, Wide<T>>(call);
    return weight_sum_kernel<T, T>(call);
  });
}

}  // namespace pl::cuda
