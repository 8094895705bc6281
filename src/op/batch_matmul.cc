#include "op/batch_matmul.h"

#include <algorithm>

#include "op/infer.h"
#include "op/matmul.h"
#include "op/reduce.h"
#include "op/transpose.h"

namespace pl {
namespace batch_matmul_op {
namespace {

// Dimensions in front of the matrices.
std::vector<Dim> leading(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }

bool ends_with(const std::vector<Dim>& whole, const std::vector<Dim>& tail) {
  return tail.size() <= whole.size() && std::equal(tail.rbegin(), tail.rend(), whole.rbegin());
}

// Inputs: a, b. Attributes: transpose_a, transpose_b (0 or 1), shared_b (1: b lacks dimension 0).
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "batch_matmul";
  expect_operands(op, 2, 2, in, attrs);
  const Shape &a = in[0].shape, &b = in[1].shape;
  if (!is_number(in[0].dtype) || in[0].dtype != in[1].dtype)
    reject(op, "operands of one dtype, floating, int32 or int64", in, attrs);
  if (a.rank() < 3 || b.rank() < 2) reject(op, "a (..., M, K) and b (..., K, N)", in, attrs);
  checked(op, in);
  std::vector<Dim> dims = leading(a);
  if (!ends_with(dims, leading(b)))
    reject(op, "equal leading dimensions, of which b may lack the first ones", in, attrs);
  if ((b.rank() < a.rank()) != (attrs.integer("shared_b", 0) != 0))
    reject(op, "attribute shared_b = 1 exactly where b lacks dimensions of a", in, attrs);
  const BatchMatmulForm f = batch_matmul_form(in, attrs);
  if (f.k != b[b.rank() - (f.transpose_b ? 1 : 2)]) reject(op, "equal inner dimensions", in, attrs);
  dims.push_back(f.m);
  dims.push_back(f.n);
  return checked(op, {{in[0].dtype, Shape(std::move(dims))}});
}

Tensor swap_last(const Tensor& x) {
  std::vector<int64_t> perm;
  for (int axis = 0; axis < x.shape().rank(); ++axis) perm.push_back(axis);
  std::swap(perm.back(), perm[perm.size() - 2]);
  return transpose(x, std::move(perm));
}

// dA = dC x B^T and dB = A^T x dC, each in the form that needs no transposed copy; dB summed over
// the dimensions that b lacks.
Tensors gradient(const GradientCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &dc = call.dout[0];
  const bool ta = call.attrs.integer("transpose_a", 0), tb = call.attrs.integer("transpose_b", 0);
  Tensors out(2);
  if (call.wants(1))
    out[1] = sum_to(tb ? batch_matmul(dc, a, {.transpose_a = true, .transpose_b = ta})
                       : batch_matmul(a, dc, {.transpose_a = !ta}),
                    b.shape());
  if (call.wants(0)) {
    const bool shared = b.shape().rank() < a.shape().rank();
    if (!ta)
      out[0] = batch_matmul(dc, b, {.transpose_b = !tb});
    else if (shared)  // only the second operand may lack dimensions
      out[0] = swap_last(batch_matmul(dc, b, {.transpose_b = !tb}));
    else
      out[0] = batch_matmul(b, dc, {.transpose_a = tb, .transpose_b = true});
  }
  return out;
}

// Dimension 0 of a counts samples, and so does that of b unless b lacks it.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const bool shared = attrs.integer("shared_b", 0);
  return in == (shared ? 0b01 : 0b11) ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = pointwise_cost(in, out, 0);
  const BatchMatmulForm f = batch_matmul_form(in, attrs);
  result.flops = 2 * static_cast<double>(out[0].elements()) * static_cast<double>(f.k);
  return result;
}

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape a, Shape b, bool ta = false, bool tb = false,
                   bool benchmark = false) {
    Sample result{name, {{{Dtype::float32, a}}, {{Dtype::float32, b}}}, {}, 1e-5, benchmark};
    if (ta) result.attrs.set("transpose_a", int64_t{1});
    if (tb) result.attrs.set("transpose_b", int64_t{1});
    if (b.rank() < a.rank()) result.attrs.set("shared_b", int64_t{1});
    return result;
  };
  return {sample("plain", {2, 4, 3}, {2, 3, 5}),
          sample("transpose_a", {2, 3, 4}, {2, 3, 5}, true),
          sample("transpose_b", {2, 4, 3}, {2, 5, 3}, false, true),
          sample("transpose_both", {2, 3, 4}, {2, 5, 3}, true, true),
          sample("two_leading", {2, 3, 4, 7}, {2, 3, 7, 5}),
          sample("one_matrix", {2, 3, 4, 7}, {7, 5}),
          sample("some_matrices", {2, 3, 4, 7}, {3, 7, 5}),
          sample("shared_transposes", {2, 3, 7, 4}, {3, 5, 7}, true, true),
          sample("no_rows", {0, 4, 3}, {0, 3, 5}),
          sample("no_inner", {2, 4, 0}, {2, 0, 5}),
          {"int32", {{{Dtype::int32, {2, 7, 3}}}, {{Dtype::int32, {2, 3, 5}}}}, {}},
          {"int64_shared",
           {{{Dtype::int64, {2, 3, 7, 4}}}, {{Dtype::int64, {3, 5, 7}}}},
           {{"transpose_a", int64_t{1}}, {"transpose_b", int64_t{1}}, {"shared_b", int64_t{1}}}},
          sample("scores", {8, 4, 256, 64}, {8, 4, 256, 64}, false, true, true),
          sample("values", {8, 4, 256, 256}, {8, 4, 256, 64}, false, false, true)};
}

constexpr Variant kVariants[] = {
    {"onednn", DeviceKind::cpu, cpu::batch_matmul_onednn},
    {"integers", DeviceKind::cpu, cpu::batch_matmul_integers},
    {"reference", DeviceKind::cpu, cpu::batch_matmul_reference},
};

}  // namespace
}  // namespace batch_matmul_op

BatchMatmulForm batch_matmul_form(const Metas& in, const Attrs& attrs) {
  const bool ta = attrs.integer("transpose_a", 0), tb = attrs.integer("transpose_b", 0);
  const Shape &a = in[0].shape, &b = in[1].shape;
  const Dim inner = Shape(batch_matmul_op::leading(b)).elements();
  const std::vector<Dim> all = batch_matmul_op::leading(a);
  const auto lacking = static_cast<std::ptrdiff_t>(a.rank() - b.rank());
  const Dim outer = Shape(std::vector<Dim>(all.begin(), all.begin() + lacking)).elements();
  return {.outer = outer,
          .inner = inner,
          .m = a[a.rank() - (ta ? 1 : 2)],
          .n = b[b.rank() - (tb ? 2 : 1)],
          .k = a[a.rank() - (ta ? 2 : 1)],
          .transpose_a = ta,
          .transpose_b = tb};
}

const Op kBatchMatmul{
    .name = "batch_matmul",
    .summary = "matrix products over leading dimensions, with optional transposes",
    .infer = batch_matmul_op::infer,
    .gradient = batch_matmul_op::gradient,
    .rows = batch_matmul_op::rows,
    .variants = batch_matmul_op::kVariants,
    .cost = batch_matmul_op::cost,
    .samples = batch_matmul_op::samples,
};

Tensor batch_matmul(const Tensor& a, const Tensor& b, BatchMatmulOptions options) {
  Attrs attrs;
  if (options.transpose_a) attrs.set("transpose_a", int64_t{1});
  if (options.transpose_b) attrs.set("transpose_b", int64_t{1});
  if (a.defined() && b.defined()) {
    if (a.shape().rank() == 2 && b.shape().rank() == 2)
      return matmul(a, b, {options.transpose_a, options.transpose_b});
    if (b.shape().rank() < a.shape().rank()) attrs.set("shared_b", int64_t{1});
  }
  return apply(kBatchMatmul, {a, b}, std::move(attrs))[0];
}

}  // namespace pl
