#include "op/matmul.h"

#include "base/error.h"
#include "op/infer.h"
#include "op/reduce.h"
#include "op/relu.h"

namespace pl {
namespace matmul_op {
namespace {

// All dimensions but the last, and their product.
std::vector<Dim> leading(const Shape& shape) { return {shape.begin(), shape.end() - 1}; }
Dim rows_of(const Shape& shape) { return Shape(leading(shape)).elements(); }

// Inputs: a, b, [bias]. Attributes: transpose_a, transpose_b (0 or 1), activation ("none", "relu"),
// dtype of the result.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("matmul", 2, 3, in, attrs);
  const Meta &a = in[0], &b = in[1];
  auto bad = [&](const std::string& expected) {
    return UserError("[matmul] expected " + expected + ", received " + a.text() + " and " +
                     b.text() + " " + attrs.print());
  };
  if (a.shape.rank() < 2 || b.shape.rank() < 2) throw bad("two matrices");
  if (a.dtype != b.dtype || !is_number(a.dtype)) throw bad("one dtype, floating, int32 or int64");
  checked("matmul", {a, b});
  const bool ta = attrs.integer("transpose_a", 0), tb = attrs.integer("transpose_b", 0);
  const bool sums = ta && !tb && (a.shape.rank() > 2 || b.shape.rank() > 2);
  if (sums && leading(a.shape) != leading(b.shape)) throw bad("equal leading dimensions");
  if (!sums && b.shape.rank() != 2) throw bad("a matrix as the second operand");
  if (ta && tb && a.shape.rank() != 2) throw bad("two matrices");
  const MatmulForm f = matmul_form(in, attrs);
  if (f.k != (tb ? b.shape[1] : rows_of(b.shape))) throw bad("equal inner dimensions");
  if (in.size() > 2 && in[2] != Meta{a.dtype, Shape{f.n}} &&
      in[2] != Meta{wide(a.dtype), Shape{f.n}})
    throw UserError("[matmul] expected a bias of " + Meta{a.dtype, Shape{f.n}}.text() +
                    ", received " + in[2].text());
  std::vector<Dim> dims = ta ? std::vector<Dim>{f.m} : leading(a.shape);
  dims.push_back(f.n);
  return checked("matmul", {{result_dtype("matmul", a.dtype, in, attrs), Shape(std::move(dims))}});
}

std::vector<int64_t> leading_axes(const Tensor& x) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis + 1 < x.shape().rank(); ++axis) axes.push_back(axis);
  return axes;
}

// dA = dC x B^T and dB = A^T x dC, each in the form that needs no transposed copy.
Tensors gradient(const GradientCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1];
  Tensor dc = call.dout[0];
  if (call.attrs.text("activation", "none") == "relu") dc = relu_gradient(call.out[0], dc);
  const bool ta = call.attrs.integer("transpose_a", 0), tb = call.attrs.integer("transpose_b", 0);
  Tensors out(call.in.size());
  // The gradient of b (weights) first: it can be used up before the next layer's gradient exists.
  if (call.in.size() > 2 && call.wants(2))
    out[2] = reduce_sum(dc, leading_axes(dc), false, call.dtype_of(2));
  if (call.wants(1))
    out[1] = tb ? matmul(dc, a, {.transpose_a = true, .transpose_b = ta, .dtype = call.dtype_of(1)})
                : matmul(a, dc, {.transpose_a = !ta, .dtype = call.dtype_of(1)});
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

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = pointwise_cost(in, out, 0);
  const MatmulForm f = matmul_form(in, attrs);
  result.flops = 2 * static_cast<double>(f.m) * static_cast<double>(f.n) * static_cast<double>(f.k);
  return result;
}

std::vector<Sample> samples() {
  auto meta = [](Dim a, Dim b) { return Meta{Dtype::float32, Shape{a, b}}; };
  auto cube = [](Dim a, Dim b, Dim c) { return Meta{Dtype::float32, Shape{a, b, c}}; };
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
      {"sequence", {{cube(2, 4, 3)}, {meta(3, 5)}, {bias}}, {}},
      {"sequence_transpose_b", {{cube(2, 4, 3)}, {meta(5, 3)}}, {{"transpose_b", int64_t{1}}}},
      {"sequence_sum", {{cube(2, 4, 3)}, {cube(2, 4, 5)}}, {{"transpose_a", int64_t{1}}}},
      {"int32", {{{Dtype::int32, {13, 9}}}, {{Dtype::int32, {9, 35}}}}, {}},
      {"int64_transpose_both",
       {{{Dtype::int64, {3, 8}}}, {{Dtype::int64, {5, 3}}}},
       {{"transpose_a", int64_t{1}}, {"transpose_b", int64_t{1}}}},
      {"int32_bias_relu",
       {{{Dtype::int32, {7, 3}}}, {{Dtype::int32, {3, 5}}}, {{Dtype::int32, {5}}}},
       {{"activation", std::string("relu")}}},
      {"mlp_b128", {{meta(128, 784)}, {meta(784, 512)}}, {}, 1e-5, true},
      {"mlp_b128_dw",
       {{meta(128, 784)}, {meta(128, 512)}},
       {{"transpose_a", int64_t{1}}},
       1e-5,
       true},
      {"gpt_up", {{cube(8, 256, 256)}, {meta(256, 1024)}}, {}, 1e-5, true},
      {"gpt_down", {{cube(8, 256, 1024)}, {meta(1024, 256)}}, {}, 1e-5, true},
      {"gpt_qkv", {{cube(8, 256, 256)}, {meta(256, 768)}}, {}, 1e-5, true},
      {"gpt_head",
       {{cube(8, 256, 256)}, {meta(1024, 256)}},
       {{"transpose_b", int64_t{1}}},
       1e-5,
       true},
      {"gpt_up_dx",
       {{cube(8, 256, 1024)}, {meta(256, 1024)}},
       {{"transpose_b", int64_t{1}}},
       1e-5,
       true},
      {"gpt_up_dw",
       {{cube(8, 256, 256)}, {cube(8, 256, 1024)}},
       {{"transpose_a", int64_t{1}}},
       1e-5,
       true},
      {"gpt_down_dw",
       {{cube(8, 256, 1024)}, {cube(8, 256, 256)}},
       {{"transpose_a", int64_t{1}}},
       1e-5,
       true},
  };
}

constexpr Variant kVariants[] = {
    {"onednn", DeviceKind::cpu, cpu::matmul_onednn},
    {"integers", DeviceKind::cpu, cpu::matmul_integers},
    {"reference", DeviceKind::cpu, cpu::matmul_reference},
};

}  // namespace
}  // namespace matmul_op

MatmulForm matmul_form(const Metas& in, const Attrs& attrs) {
  const bool ta = attrs.integer("transpose_a", 0), tb = attrs.integer("transpose_b", 0);
  const Shape &a = in[0].shape, &b = in[1].shape;
  return {.m = ta ? a.back() : matmul_op::rows_of(a),
          .n = tb ? b[0] : b.back(),
          .k = ta ? matmul_op::rows_of(a) : a.back(),
          .transpose_a = ta,
          .transpose_b = tb,
          .bias = in.size() > 2,
          .relu = attrs.text("activation", "none") == "relu"};
}

const Op kMatmul{
    .name = "matmul",
    .summary = "matrix product with optional transposes, bias and relu",
    .infer = matmul_op::infer,
    .gradient = matmul_op::gradient,
    .rows = matmul_op::rows,
    .variants = matmul_op::kVariants,
    .cost = matmul_op::cost,
    .samples = matmul_op::samples,
};

Attrs matmul_attrs(const MatmulOptions& options, Dtype operands) {
  Attrs attrs;
  if (options.transpose_a) attrs.set("transpose_a", int64_t{1});
  if (options.transpose_b) attrs.set("transpose_b", int64_t{1});
  const bool wider = options.dtype && *options.dtype != operands;
  if (wider) attrs.set("dtype", std::string(name_of(*options.dtype)));
  return attrs;
}

Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options, const Tensor& bias) {
  Tensors in{a, b};
  if (bias.defined()) in.push_back(bias);
  return apply(kMatmul, std::move(in), matmul_attrs(options, a.dtype()))[0];
}

}  // namespace pl
