// Plain CUDA kernels of attention, for what cuDNN does not take: a warp for each query, and in the
// backward pass one for each key as well. Nothing is added by two warps.
#include "op/attention.h"
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

template <class T>
struct HeadsOf {
  T *q, *k, *v;
};
template <class T>
__device__ HeadsOf<T> heads_at(const AttentionForm& f, T* const (&operands)[3], int64_t b,
                               int64_t h) {
  const int64_t width = f.heads * f.size, key = b * f.keys * f.kv_stride + h * f.size;
  T* q = operands[0];
  T* k = f.packed ? q + width : operands[1];
  T* v = f.packed ? q + 2 * width : operands[2];
  return {q + b * f.queries * f.q_stride + h * f.size, k + key, v + key};
}

// Elements of a head that a lane has: d / 32, at most.
constexpr int kMostOfHead = 8;

template <class T>
__device__ Wide<T> lane_dot(const Wide<T>* own, const T* other, int64_t size) {
  Wide<T> sum = 0;
#pragma unroll
  for (int e = 0; e < kMostOfHead; ++e) {
    const int64_t i = e * 32 + threadIdx.x % 32;
    if (i < size) sum += own[e] * widen(other[i]);
  }
  return warp_all(sum, Plus{});
}
template <class T>
__device__ void lane_load(const T* from, int64_t size, Wide<T> (&to)[kMostOfHead]) {
#pragma unroll
  for (int e = 0; e < kMostOfHead; ++e) {
    const int64_t i = e * 32 + threadIdx.x % 32;
    to[e] = i < size ? widen(from[i]) : Wide<T>(0);
  }
}
template <class T>
__device__ void lane_store(const Wide<T> (&from)[kMostOfHead], int64_t size, T* to) {
#pragma unroll
  for (int e = 0; e < kMostOfHead; ++e) {
    const int64_t i = e * 32 + threadIdx.x % 32;
    if (i < size) to[i] = static_cast<T>(from[e]);
  }
}
template <class T>
__device__ void lane_add(Wide<T> (&to)[kMostOfHead], const T* from, int64_t size, Wide<T> factor) {
#pragma unroll
  for (int e = 0; e < kMostOfHead; ++e) {
    const int64_t i = e * 32 + threadIdx.x % 32;
    if (i < size) to[e] += factor * widen(from[i]);
  }
}

template <class T>
struct AttentionArgs {
  AttentionForm f;
  T* in[3];
  T* grad[3];
  T* y;
  const T* dy;
  Wide<T>* lse;
  const Wide<T>* dlse;
  Wide<T>* flat;  // (B, H, T): dot(dy, y) - dlse
};

template <class T>
__global__ void attend_queries(AttentionArgs<T> a) {
  using W = Wide<T>;
  const AttentionForm& f = a.f;
  const int64_t tasks = f.batch * f.heads * f.queries, stride = f.heads * f.size;
  for (int64_t task = thread_index() / 32; task < tasks; task += thread_count() / 32) {
    const int64_t t = task % f.queries, h = task / f.queries % f.heads;
    const int64_t b = task / f.queries / f.heads;
    const HeadsOf<T> heads = heads_at<T>(f, a.in, b, h);
    W q[kMostOfHead], sum[kMostOfHead] = {};
    lane_load(heads.q + t * f.q_stride, f.size, q);
    W largest = -infinity(W(0)), total = 0;
    const int64_t seen = f.causal ? min(t + 1, f.keys) : f.keys;
    for (int64_t s = 0; s < seen; ++s) {
      const W score = lane_dot(q, heads.k + s * f.kv_stride, f.size) * static_cast<W>(f.scale);
      if (score > largest) {
        const W less = exp_of(largest - score);
        largest = score;
        total *= less;
#pragma unroll
        for (int e = 0; e < kMostOfHead; ++e) sum[e] *= less;
      }
      const W p = exp_of(score - largest);
      total += p;
      lane_add(sum, heads.v + s * f.kv_stride, f.size, p);
    }
#pragma unroll
    for (int e = 0; e < kMostOfHead; ++e) sum[e] = seen > 0 ? sum[e] / total : W(0);
    lane_store(sum, f.size, a.y + (b * f.queries + t) * stride + h * f.size);
    if (threadIdx.x % 32 == 0) a.lse[task] = largest + log_of(total);
  }
}

template <class T>
__global__ void attention_query_gradients(AttentionArgs<T> a) {
  using W = Wide<T>;
  const AttentionForm& f = a.f;
  const int64_t tasks = f.batch * f.heads * f.queries, stride = f.heads * f.size;
  for (int64_t task = thread_index() / 32; task < tasks; task += thread_count() / 32) {
    const int64_t t = task % f.queries, h = task / f.queries % f.heads;
    const int64_t b = task / f.queries / f.heads;
    const HeadsOf<T> heads = heads_at<T>(f, a.in, b, h), grads = heads_at<T>(f, a.grad, b, h);
    W q[kMostOfHead], dy[kMostOfHead], dq[kMostOfHead] = {};
    const int64_t at = (b * f.queries + t) * stride + h * f.size;
    lane_load(heads.q + t * f.q_stride, f.size, q);
    lane_load(a.dy + at, f.size, dy);
    const W flat = lane_dot(dy, a.y + at, f.size) - (a.dlse ? a.dlse[task] : W(0));
    if (threadIdx.x % 32 == 0) a.flat[task] = flat;
    const int64_t seen = f.causal ? min(t + 1, f.keys) : f.keys;
    for (int64_t s = 0; s < seen; ++s) {
      const T* k = heads.k + s * f.kv_stride;
      const W p = exp_of(lane_dot(q, k, f.size) * static_cast<W>(f.scale) - a.lse[task]);
      const W slope = p * (lane_dot(dy, heads.v + s * f.kv_stride, f.size) - flat);
      lane_add(dq, k, f.size, slope * static_cast<W>(f.scale));
    }
    lane_store(dq, f.size, grads.q + t * f.q_stride);
  }
}

template <class T>
__global__ void attention_key_gradients(AttentionArgs<T> a) {
  using W = Wide<T>;
  const AttentionForm& f = a.f;
  const int64_t tasks = f.batch * f.heads * f.keys, stride = f.heads * f.size;
  for (int64_t task = thread_index() / 32; task < tasks; task += thread_count() / 32) {
    const int64_t s = task % f.keys, h = task / f.keys % f.heads, b = task / f.keys / f.heads;
    const HeadsOf<T> heads = heads_at<T>(f, a.in, b, h), grads = heads_at<T>(f, a.grad, b, h);
    W k[kMostOfHead], v[kMostOfHead], dk[kMostOfHead] = {}, dv[kMostOfHead] = {};
    lane_load(heads.k + s * f.kv_stride, f.size, k);
    lane_load(heads.v + s * f.kv_stride, f.size, v);
    for (int64_t t = f.causal ? s : 0; t < f.queries; ++t) {
      const int64_t row = (b * f.heads + h) * f.queries + t;
      const T *q = heads.q + t * f.q_stride, *dy = a.dy + (b * f.queries + t) * stride + h * f.size;
      const W p = exp_of(lane_dot(k, q, f.size) * static_cast<W>(f.scale) - a.lse[row]);
      const W slope = p * (lane_dot(v, dy, f.size) - a.flat[row]) * static_cast<W>(f.scale);
      lane_add(dk, q, f.size, slope);
      lane_add(dv, dy, f.size, p);
    }
    lane_store(dk, f.size, grads.k + s * f.kv_stride);
    lane_store(dv, f.size, grads.v + s * f.kv_stride);
  }
}

}  // namespace

std::unique_ptr<Kernel> attention(const PrepareCall& call) {
  const AttentionForm f = attention_form(call.in, call.attrs);
  if (f.size > 32 * kMostOfHead) return nullptr;
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      const int64_t tasks = f.batch * f.heads * f.queries;
      if (tasks == 0) return;
      AttentionArgs<T> args{.f = f, .y = output<T>(out, 0), .lse = output<Wide<T>>(out, 1)};
      for (int i = 0; i < (f.packed ? 1 : 3); ++i) args.in[i] = output<T>(in, i);
      attend_queries<T><<<launch.blocks(tasks, 4), 128, 0, launch.stream>>>(args);
    });
  });
}

// The gradients of q, k and v may lie where these are: they are made in workspace and copied.
std::unique_ptr<Kernel> attention_gradient(const PrepareCall& call) {
  const AttentionForm f = attention_form(call.in, call.attrs);
  if (f.size > 32 * kMostOfHead) return nullptr;
  const int first = f.packed ? 1 : 3;
  const bool with_dlse = call.in.size() > static_cast<size_t>(first) + 3;
  Bytes sizes[3] = {}, total = 0;
  for (int i = 0; i < first; ++i) {
    sizes[i] = call.out[static_cast<size_t>(i)].bytes();
    total += align_up(sizes[i], 256);
  }
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          const int64_t queries = f.batch * f.heads * f.queries;
          const int64_t keys = f.batch * f.heads * f.keys;
          AttentionArgs<T> args{.f = f,
                                .y = output<T>(in, first),
                                .dy = input<T>(in, first + 2),
                                .lse = output<W>(in, first + 1),
                                .dlse = with_dlse ? input<W>(in, first + 3) : nullptr,
                                .flat = reinterpret_cast<W*>(workspace + total)};
          char* next = workspace;
          for (int i = 0; i < first; next += align_up(sizes[i++], 256)) {
            args.in[i] = output<T>(in, i);
            args.grad[i] = reinterpret_cast<T*>(next);
          }
          if (queries > 0)
            attention_query_gradients<T>
                <<<launch.blocks(queries, 4), 128, 0, launch.stream>>>(args);
          if (keys > 0)
            attention_key_gradients<T><<<launch.blocks(keys, 4), 128, 0, launch.stream>>>(args);
          for (int i = 0; i < first; ++i)
            if (sizes[i] > 0)
              cudaMemcpyAsync(out[i], args.grad[i], static_cast<size_t>(sizes[i]),
                              cudaMemcpyDeviceToDevice, launch.stream);
        },
        total + f.batch * f.heads * f.queries * static_cast<Bytes>(sizeof(W)));
  });
}

}  // namespace pl::cuda
