#include "op/matmul.h"

#include "base/error.h"
#include "op/infer.h"
#include "op/reduce.h"
#include "op/relu.h"

namespace pl {
namespace {

// Inputs: a, b, [bias]. Attributes: transpose_a, transpose_b (0 or 1), activation ("none", "relu").
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("matmul", 2, 3, in, attrs);
  const Meta &a = in[0], &b = in[1];
  auto bad = [&](const std::string& expected) {
    return UserError("[matmul] expected " + expected + ", received " + a.text() + " and " +
                     b.text() + " " + attrs.print());
  };
  if (a.shape.rank() != 2 || b.shape.rank() != 2) throw bad("two matrices");
  if (a.dtype != b.dtype || !is_floating(a.dtype)) throw bad("one floating dtype");
  const bool ta = attrs.integer("transpose_a", 0), tb = attrs.integer("transpose_b", 0);
  const Dim m = a.shape[ta ? 1 : 0], k = a.shape[ta ? 0 : 1];
  const Dim kb = b.shape[tb ? 1 : 0], n = b.shape[tb ? 0 : 1];
  if (k != kb) throw bad("equal inner dimensions");
  if (in.size() > 2 && in[2] != Meta{a.dtype, Shape{n}})
    throw UserError("[matmul] expected a bias of " + Meta{a.dtype, Shape{n}}.text() +
                    ", received " + in[2].text());
  return {{a.dtype, Shape{m, n}}};
}

// dA = dC x B^T and dB = A^T x dC, each in the form that needs no transposed copy.
Tensors gradient(const GradientCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1];
  Tensor dc = call.dout[0];
  if (call.attrs.text("activation", "none") == "relu") dc = relu_gradient(call.out[0], dc);
  const bool ta = call.attrs.integer("transpose_a", 0), tb = call.attrs.integer("transpose_b", 0);
  Tensors out(call.in.size());
  // The gradient of b (weights) first: it can be used up before the next layer's gradient exists.
  if (call.in.size() > 2 && call.wants(2)) out[2] = reduce_sum(dc, {0});
  if (call.wants(1))
    out[1] = tb ? matmul(dc, a, {.transpose_a = true, .transpose_b = ta})
                : matmul(a, dc, {.transpose_a = !ta});
  if (call.wants(0))
    out[0] = ta ? matmul(b, dc, {.transpose_a = tb, .transpose_b = true})
                : matmul(dc, b, {.transpose_b = !tb});
  return out;
}

Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const bool ta = attrs.integer("transpose_a", 0), tb = attrs.integer("transpose_b", 0);
  if (in == 1 && !ta) return Rows::maps;        // activations x weights
  if (in == 3 && ta && !tb) return Rows::sums;  // activations^T x gradients
  return Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  const double outputs = static_cast<double>(out[0].elements());
  const double inner = outputs > 0
                           ? static_cast<double>(in[0].elements()) /
                                 static_cast<double>(out[0].shape[0] > 0 ? out[0].shape[0] : 1)
                           : 0;
  result.flops = 2 * outputs * inner;
  return result;
}

std::vector<Sample> samples() {
  auto meta = [](Dim a, Dim b) { return Meta{Dtype::float32, Shape{a, b}}; };
  const Meta bias{Dtype::float32, Shape{5}};
  return {
      {"plain", {{meta(7, 3)}, {meta(3, 5)}}, {}},
      {"bias", {{meta(7, 3)}, {meta(3, 5)}, {bias}}, {}},
      {"bias_relu", {{meta(7, 3)}, {meta(3, 5)}, {bias}}, {{"activation", std::string("relu")}}},
      {"transpose_a", {{meta(3, 7)}, {meta(3, 5)}}, {{"transpose_a", int64_t{1}}}},
      {"transpose_b", {{meta(7, 3)}, {meta(5, 3)}}, {{"transpose_b", int64_t{1}}}},
      {"transpose_both",
       {{meta(3, 7)}, {meta(5, 3)}},
       {{"transpose_a", int64_t{1}}, {"transpose_b", int64_t{1}}}},
      {"one_row", {{meta(1, 33)}, {meta(33, 5)}, {bias}}, {}},
      {"mlp_b128", {{meta(128, 784)}, {meta(784, 512)}}, {}, 1e-5, true},
      {"mlp_b128_dw",
       {{meta(128, 784)}, {meta(128, 512)}},
       {{"transpose_a", int64_t{1}}},
       1e-5,
       true},
  };
}

constexpr Variant kVariants[] = {
    {"onednn", DeviceKind::cpu, cpu::matmul_onednn},
    {"reference", DeviceKind::cpu, cpu::matmul_reference},
};

}  // namespace

const Op kMatmul{
    .name = "matmul",
    .summary = "matrix product with optional transposes, bias and relu",
    .infer = infer,
    .gradient = gradient,
    .rows = rows,
    .variants = kVariants,
    .cost = cost,
    .samples = samples,
};

Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options, const Tensor& bias) {
  Attrs attrs;
  if (options.transpose_a) attrs.set("transpose_a", int64_t{1});
  if (options.transpose_b) attrs.set("transpose_b", int64_t{1});
  Tensors in{a, b};
  if (bias.defined()) in.push_back(bias);
  return apply(kMatmul, std::move(in), std::move(attrs))[0];
}

}  // namespace pl
