// attention: softmax(scale * Q K^T) V for each sample and head, and its gradient. Scores exist for
// a tile of queries at a time, in workspace; the backward pass computes them again from the inputs
// and the logarithm of each softmax's denominator.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kAttention;
extern const Op kAttentionGradient;

struct AttentionOptions {
  int heads = 1;
  bool causal = false;  // query t sees keys 0 to t
  double scale = 0;     // 0: 1 / sqrt(head dimension)
};

// Packed: qkv (B, T, 3 * H * d), along the last axis first q of all heads, then k, then v. Result
// (B, T, H * d).
Tensor attention(const Tensor& qkv, AttentionOptions options);
// q (B, T, H * d), k and v (B, S, H * d). Result (B, T, H * d).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options);

// Gradients of `in`, which is {qkv} or {q, k, v}; as many as it holds. out (B, T, H * d) and lse
// (B, H, T) are attention's outputs; dlse may be undefined.
Tensors attention_gradient(const Tensors& in, const Tensor& out, const Tensor& lse,
                           const Tensor& dout, AttentionOptions options, const Tensor& dlse = {});

// What kernels know of a call. Elements of head h of sample b, query t: q + (b * T + t) * q_stride
// + h * d; out likewise with stride H * d.
struct AttentionForm {
  Dim batch, queries, keys, heads, size;  // size: of a head, d
  Dim q_stride, kv_stride;                // from one query or key to the next
  bool packed, causal;
  double scale;
};
AttentionForm attention_form(const Metas& in, const Attrs& attrs);

namespace cpu {
std::unique_ptr<Kernel> attention_simd(const PrepareCall&);
std::unique_ptr<Kernel> attention_reference(const PrepareCall&);
std::unique_ptr<Kernel> attention_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> attention_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
