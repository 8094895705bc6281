#include "op/attention.h"

#include <algorithm>
#include <cmath>

#include "op/infer.h"
#include "op/scale.h"

namespace pl {
namespace attention_op {
namespace {

// The operands that attention itself takes: one if packed, else three.
size_t operands_of(const Attrs& attrs) { return attrs.integer("packed", 0) ? 1 : 3; }

// Checks q, k, v or qkv in front of `in`.
void expect_sequences(const char* op, const Metas& in, const Attrs& attrs) {
  const Meta& q = in[0];
  const int64_t heads = attrs.integer("heads", 1);
  const bool packed = operands_of(attrs) == 1;
  if (!is_real(q.dtype) || q.shape.rank() != 3)
    reject(op, "sequences (batch, steps, features) of a floating dtype", in, attrs);
  for (size_t i = 0; i < operands_of(attrs); ++i) checked(op, {in[i]});
  if (heads < 1 || q.shape[2] < 1 || q.shape[2] % (heads * (packed ? 3 : 1)) != 0)
    reject(op, packed ? "features that 3 * heads divides" : "features that heads divides", in,
           attrs);
  if (!std::isfinite(attrs.real("scale", 0))) reject(op, "a finite scale", in, attrs);
  if (packed) return;
  const Meta& k = in[1];
  if (k.dtype != q.dtype || k.shape.rank() != 3 || k.shape[0] != q.shape[0] ||
      k.shape[2] != q.shape[2] || in[2] != k || k.shape[1] < 1)
    reject(op, "k and v of q's batch and features, of one shape, with a step or more", in, attrs);
}

Meta out_of(const AttentionForm& f, Dtype dtype) {
  return {dtype, Shape{f.batch, f.queries, f.heads * f.size}};
}
Meta lse_of(const AttentionForm& f, Dtype dtype) {
  return {wide(dtype), Shape{f.batch, f.heads, f.queries}};
}
// lse and dlse, behind attention's own operands.
RowMask gradient_wide_operands(const Attrs& attrs, size_t) {
  return RowMask{0b1010} << operands_of(attrs);
}

// Inputs: qkv (attribute packed = 1) or q, k, v. Attributes: heads, causal, scale. Outputs: out and
// lse, the logarithm of the sum of exponentials of each query's scores.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("attention", operands_of(attrs), operands_of(attrs), in, attrs);
  expect_sequences("attention", in, attrs);
  const AttentionForm f = attention_form(in, attrs);
  return checked("attention", {out_of(f, in[0].dtype), lse_of(f, in[0].dtype)});
}

// Inputs: those of attention, out, lse, dout, [dlse].
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "attention_gradient";
  const size_t first = operands_of(attrs);
  expect_operands(op, first + 3, first + 4, in, attrs);
  expect_sequences(op, in, attrs);
  const AttentionForm f = attention_form(in, attrs);
  const Meta out = out_of(f, in[0].dtype), lse = lse_of(f, in[0].dtype);
  bool fits = in[first] == out && in[first + 1] == lse && in[first + 2] == out;
  if (in.size() > first + 3) fits = fits && in[first + 3] == lse;
  if (!fits)
    reject(op, "out and dout of " + out.text() + ", lse (and dlse) of " + lse.text(), in, attrs);
  return Metas(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(first));
}

AttentionOptions options_of(const Attrs& attrs) {
  return {.heads = static_cast<int>(attrs.integer("heads", 1)),
          .causal = attrs.integer("causal", 0) != 0,
          .scale = attrs.real("scale", 0)};
}

Tensors gradient(const GradientCall& call) {
  // Without a gradient of `out` there is still one of lse.
  const Tensor dout = call.dout[0].defined() ? call.dout[0] : scale(call.out[0], 0);
  return attention_gradient(Tensors(call.in.begin(), call.in.end()), call.out[0], call.out[1], dout,
                            options_of(call.attrs), call.dout[1]);
}

// Every operand has the samples along dimension 0.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return in == (RowMask{1} << operands_of(attrs)) - 1 ? Rows::maps : Rows::mixes;
}
Rows gradient_rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const size_t operands = operands_of(attrs) + 3;
  const RowMask all = (RowMask{1} << operands) - 1;
  return in == all || in == (all << 1 | 1) ? Rows::maps : Rows::mixes;
}

// Pairs of query and key that meet, times `products` inner products of length d for each.
double pair_flops(const AttentionForm& f, double products) {
  const double queries = static_cast<double>(f.queries), keys = static_cast<double>(f.keys);
  double pairs = queries * keys;
  if (f.causal) {
    const double corner = std::min(queries, keys);
    pairs = corner * (corner + 1) / 2 + (queries - corner) * keys;
  }
  return 2 * products * pairs * static_cast<double>(f.batch * f.heads * f.size);
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = pair_flops(attention_form(in, attrs), 2);
  return result;
}
Cost gradient_cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = pair_flops(attention_form(in, attrs), 5);
  return result;
}

struct Size {
  const char* name;
  Dim batch, queries, keys, heads, size;
  bool packed = false, causal = false;
  double scale = 0;
  bool benchmark = false;
};
constexpr Size kSizes[] = {
    {"packed", 2, 5, 5, 2, 4, true},
    {"packed_causal", 2, 7, 7, 3, 4, true, true},
    {"cross", 2, 3, 6, 2, 8},
    {"causal_more_keys", 1, 4, 9, 1, 3, false, true},
    {"causal_more_queries", 1, 9, 4, 1, 3, false, true},
    {"scaled", 1, 6, 6, 1, 16, true, false, 0.7},
    {"one_step", 3, 1, 1, 2, 2, true, true},
    {"no_rows", 0, 3, 3, 2, 4, true},
    {"no_queries", 2, 0, 3, 1, 4},
    {"tiles", 1, 131, 131, 2, 20, true, true},
    {"long", 1, 70, 150, 1, 33},
    {"gpt_b1", 1, 256, 256, 4, 64, true, true, 0, true},
    {"gpt_b8", 8, 256, 256, 4, 64, true, true, 0, true},
    {"bert_b8", 8, 256, 256, 4, 64, true, false, 0, true},
    {"gpt_b2_t1024", 2, 1024, 1024, 4, 64, true, true, 0, true},
};

std::vector<Sample> samples_of(bool backward) {
  std::vector<Sample> out;
  for (const Size& size : kSizes) {
    const Dim width = size.heads * size.size;
    const Meta q{Dtype::float32, Shape{size.batch, size.queries, width}};
    const Meta k{Dtype::float32, Shape{size.batch, size.keys, width}};
    Sample sample{size.name, {}, {{"heads", size.heads}}, 1e-5, size.benchmark};
    if (size.causal) sample.attrs.set("causal", int64_t{1});
    if (size.packed) sample.attrs.set("packed", int64_t{1});
    if (size.scale != 0) sample.attrs.set("scale", size.scale);
    if (size.packed)
      sample.in = {{{Dtype::float32, Shape{size.batch, size.queries, 3 * width}}}};
    else
      sample.in = {{q}, {k}, {k}};
    if (backward) {
      const Meta lse{Dtype::float32, Shape{size.batch, size.heads, size.queries}};
      // Any numbers do: the gradient does not ask whether the probabilities sum to 1.
      sample.in.insert(sample.in.end(), {{q}, {lse, Fill::positive}, {q}});
      if (size.batch == 1) sample.in.push_back({lse});
    }
    out.push_back(std::move(sample));
  }
  return out;
}
std::vector<Sample> samples() { return samples_of(false); }
std::vector<Sample> gradient_samples() { return samples_of(true); }

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::attention_simd},
    {"reference", DeviceKind::cpu, cpu::attention_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::attention_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::attention_gradient_reference},
};
// dqkv takes qkv's place, or dq that of q: heads are copied before they are overwritten.
constexpr InOut kGradientInPlace[] = {{0, 0}};

Attrs attrs_of(AttentionOptions options, bool packed) {
  Attrs attrs{{"heads", int64_t{options.heads}}};
  if (options.causal) attrs.set("causal", int64_t{1});
  if (packed) attrs.set("packed", int64_t{1});
  if (options.scale != 0) attrs.set("scale", options.scale);
  return attrs;
}

}  // namespace
}  // namespace attention_op

AttentionForm attention_form(const Metas& in, const Attrs& attrs) {
  AttentionForm f{};
  const Shape& q = in[0].shape;
  f.packed = attrs.integer("packed", 0);
  f.causal = attrs.integer("causal", 0);
  f.batch = q[0];
  f.queries = q[1];
  f.keys = f.packed ? q[1] : in[1].shape[1];
  f.heads = attrs.integer("heads", 1);
  f.size = q[2] / (f.packed ? 3 : 1) / f.heads;
  f.q_stride = f.kv_stride = q[2];
  f.scale = attrs.real("scale", 0);
  if (f.scale == 0) f.scale = 1 / std::sqrt(static_cast<double>(f.size));
  return f;
}

const Op kAttention{
    .name = "attention",
    .summary = "softmax(scale * Q K^T) V per head, in tiles of queries",
    .infer = attention_op::infer,
    .gradient = attention_op::gradient,
    .rows = attention_op::rows,
    .variants = attention_op::kVariants,
    .cost = attention_op::cost,
    .samples = attention_op::samples,
};

const Op kAttentionGradient{
    .name = "attention_gradient",
    .summary = "gradients of attention, whose scores are computed again",
    .infer = attention_op::gradient_infer,
    .in_place = attention_op::kGradientInPlace,
    .rows = attention_op::gradient_rows,
    .wide_operands = attention_op::gradient_wide_operands,
    .variants = attention_op::kGradientVariants,
    .cost = attention_op::gradient_cost,
    .samples = attention_op::gradient_samples,
};

Tensor attention(const Tensor& qkv, AttentionOptions options) {
  return apply(kAttention, {qkv}, attention_op::attrs_of(options, true))[0];
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options) {
  return apply(kAttention, {q, k, v}, attention_op::attrs_of(options, false))[0];
}

Tensors attention_gradient(const Tensors& in, const Tensor& out, const Tensor& lse,
                           const Tensor& dout, AttentionOptions options, const Tensor& dlse) {
  Tensors all = in;
  all.insert(all.end(), {out, lse, dout});
  if (dlse.defined()) all.push_back(dlse);
  return apply(kAttentionGradient, std::move(all), attention_op::attrs_of(options, in.size() == 1));
}

}  // namespace pl
