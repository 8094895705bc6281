// Reference kernels of attention: one query after another. Samples and heads are shared out to
// threads; each thread has a slice of the workspace.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/parallel.h"
#include "op/attention.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

template <class T>
T dot(const T* a, const T* b, Dim count) {
  T sum = 0;
  for (Dim i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Keys that query t sees.
Dim seen(const AttentionForm& f, Dim t) { return f.causal ? std::min(t + 1, f.keys) : f.keys; }

// Where head h of sample b begins in q, k and v (or their gradients).
template <class T>
struct Heads {
  T *q, *k, *v;
};

template <class T>
Heads<T> heads_of(const AttentionForm& f, void* const* operands, Dim b, Dim h) {
  const Dim width = f.heads * f.size;
  T* q = static_cast<T*>(operands[0]);
  T* k = f.packed ? q + width : static_cast<T*>(operands[1]);
  T* v = f.packed ? q + 2 * width : static_cast<T*>(operands[2]);
  const Dim key = b * f.keys * f.kv_stride + h * f.size;
  return {q + b * f.queries * f.q_stride + h * f.size, k + key, v + key};
}

// out (d) and the return value lse for one query; scores: workspace of one number per key.
template <class T>
T attend(const AttentionForm& f, const T* q, const T* k, const T* v, Dim keys, T* scores, T* out) {
  T largest = -std::numeric_limits<T>::infinity();
  for (Dim s = 0; s < keys; ++s) {
    scores[s] = dot(q, k + s * f.kv_stride, f.size) * static_cast<T>(f.scale);
    largest = scores[s] > largest ? scores[s] : largest;
  }
  T sum = 0;
  for (Dim s = 0; s < keys; ++s) sum += scores[s] = std::exp(scores[s] - largest);
  for (Dim i = 0; i < f.size; ++i) out[i] = 0;
  for (Dim s = 0; s < keys; ++s)
    for (Dim i = 0; i < f.size; ++i) out[i] += scores[s] / sum * v[s * f.kv_stride + i];
  return largest + std::log(sum);
}

// Copies a head's rows, `stride` apart, to rows of d.
template <class T>
void gather(const T* from, Dim rows, Dim stride, Dim size, T* to) {
  for (Dim r = 0; r < rows; ++r) std::copy_n(from + r * stride, size, to + r * size);
}
template <class T>
void scatter(const T* from, Dim rows, Dim stride, Dim size, T* to) {
  for (Dim r = 0; r < rows; ++r) std::copy_n(from + r * size, size, to + r * stride);
}

// One head's part of the workspace of the backward pass: k, v, dk, dv (keys, d), q and dq (d).
Dim gradient_space(const AttentionForm& f) { return 4 * f.keys * f.size + 2 * f.size; }

// `out` and `dout` begin at the head, with stride H * d; lse and dlse (may be null) at its queries.
template <class T>
void attend_backward(const AttentionForm& f, const Heads<T>& in, const Heads<T>& grad, const T* out,
                     const T* lse, const T* dout, const T* dlse, T* space) {
  const Dim all = f.keys * f.size, stride = f.heads * f.size;
  T *k = space, *v = k + all, *dk = v + all, *dv = dk + all, *q = dv + all, *dq = q + f.size;
  gather(in.k, f.keys, f.kv_stride, f.size, k);
  gather(in.v, f.keys, f.kv_stride, f.size, v);
  std::fill_n(dk, 2 * all, T(0));
  for (Dim t = 0; t < f.queries; ++t) {
    std::copy_n(in.q + t * f.q_stride, f.size, q);
    std::fill_n(dq, f.size, T(0));
    const T* dy = dout + t * stride;
    const T flat = dot(dy, out + t * stride, f.size) - (dlse ? dlse[t] : T(0));
    for (Dim s = 0; s < seen(f, t); ++s) {
      const T score = dot(q, k + s * f.size, f.size) * static_cast<T>(f.scale);
      const T p = std::exp(score - lse[t]);
      const T slope = p * (dot(dy, v + s * f.size, f.size) - flat) * static_cast<T>(f.scale);
      for (Dim i = 0; i < f.size; ++i) {
        dq[i] += slope * k[s * f.size + i];
        dk[s * f.size + i] += slope * q[i];
        dv[s * f.size + i] += p * dy[i];
      }
    }
    std::copy_n(dq, f.size, grad.q + t * f.q_stride);
  }
  scatter(dk, f.keys, f.kv_stride, f.size, grad.k);
  scatter(dv, f.keys, f.kv_stride, f.size, grad.v);
}

}  // namespace

std::unique_ptr<Kernel> attention_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const AttentionForm f = attention_form(call.in, call.attrs);
    const Dim tasks = f.batch * f.heads;
    const int threads = call.backend.threads();
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          const Dim stride = f.heads * f.size;
          parallel_ranges(threads, tasks, tasks * f.queries * f.keys * f.size,
                          [&](Dim begin, Dim end) {
                            T* scores = static_cast<T*>(workspace) + omp_get_thread_num() * f.keys;
                            for (Dim task = begin; task < end; ++task) {
                              const Dim b = task / f.heads, h = task % f.heads;
                              const Heads<T> heads = heads_of<T>(f, in, b, h);
                              T* y = static_cast<T*>(out[0]) + b * f.queries * stride + h * f.size;
                              T* lse = static_cast<T*>(out[1]) + task * f.queries;
                              for (Dim t = 0; t < f.queries; ++t)
                                lse[t] = attend(f, heads.q + t * f.q_stride, heads.k, heads.v,
                                                seen(f, t), scores, y + t * stride);
                            }
                          });
        },
        tasks > 0 ? threads * f.keys * static_cast<Bytes>(sizeof(T)) : 0);
  });
}

std::unique_ptr<Kernel> attention_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const AttentionForm f = attention_form(call.in, call.attrs);
    const Dim tasks = f.batch * f.heads;
    const int threads = call.backend.threads();
    const size_t first = f.packed ? 1 : 3;
    const bool with_dlse = call.in.size() > first + 3;
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          const Dim stride = f.heads * f.size;
          const T* y = static_cast<const T*>(in[first]);
          const T* lse = static_cast<const T*>(in[first + 1]);
          const T* dy = static_cast<const T*>(in[first + 2]);
          const T* dlse = with_dlse ? static_cast<const T*>(in[first + 3]) : nullptr;
          parallel_ranges(
              threads, tasks, tasks * f.queries * f.keys * f.size, [&](Dim begin, Dim end) {
                T* space = static_cast<T*>(workspace) + omp_get_thread_num() * gradient_space(f);
                for (Dim task = begin; task < end; ++task) {
                  const Dim b = task / f.heads, h = task % f.heads;
                  const Dim at = b * f.queries * stride + h * f.size;
                  attend_backward<T>(f, heads_of<T>(f, in, b, h), heads_of<T>(f, out, b, h), y + at,
                                     lse + task * f.queries, dy + at,
                                     dlse ? dlse + task * f.queries : nullptr, space);
                }
              });
        },
        tasks > 0 ? threads * gradient_space(f) * static_cast<Bytes>(sizeof(T)) : 0);
  });
}

}  // namespace pl::cpu
