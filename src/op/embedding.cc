#include "op/embedding.h"

#include <limits>

#include "op/cast.h"
#include "op/infer.h"

namespace pl {
namespace embedding_op {
namespace {

// Inputs: table (V, D), indices int32 S. Output: (S..., D).
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "embedding";
  expect_operands(op, 2, 2, in, attrs);
  if (in[0].shape.rank() != 2 || !is_real(in[0].dtype))
    reject(op, "a table (V, D) of float32 or float64", in, attrs);
  if (in[1].dtype != Dtype::int32) reject(op, "int32 indices", in, attrs);
  checked(op, {in[0], in[1]});
  std::vector<Dim> dims = in[1].shape.dims();
  dims.push_back(in[0].shape[1]);
  return checked(op, {{in[0].dtype, Shape(std::move(dims))}});
}

// Inputs: indices int32 S, dy (S..., D), and for the `onto` form a table (V, D) first. Attribute
// depth: V; dtype of the output (V, D).
Metas sums(const char* op, const Meta& indices, const Meta& dy, const Metas& in,
           const Attrs& attrs) {
  if (indices.dtype != Dtype::int32) reject(op, "int32 indices", in, attrs);
  if (!is_real(dy.dtype) || dy.shape.rank() != indices.shape.rank() + 1)
    reject(op, "dy (S..., D) of float32 or float64 for indices S", in, attrs);
  for (int axis = 0; axis < indices.shape.rank(); ++axis)
    if (indices.shape[axis] != dy.shape[axis])
      reject(op, "dy (S..., D) of float32 or float64 for indices S", in, attrs);
  const Dim depth = attrs.integer("depth");
  checked(op, {indices, dy});
  constexpr Dim kMost = std::numeric_limits<int32_t>::max();  // places are kept as int32
  if (depth < 0 || depth > kMost || indices.elements() > kMost)
    reject(op, "fewer than 2^31 rows and indices", in, attrs);
  const Dtype dtype = result_dtype(op, dy.dtype, in, attrs);
  return checked(op, {{dtype, Shape{depth, dy.shape.back()}}});
}

Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("embedding_gradient", 2, 2, in, attrs);
  return sums("embedding_gradient", in[0], in[1], in, attrs);
}

Metas onto_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "embedding_gradient_onto";  // or accumulate
  expect_operands(op, 3, 3, in, attrs);
  Metas out = sums(op, in[1], in[2], in, attrs);
  if (in[0] != out[0]) reject(op, "a table (V, D) of the result's dtype first", in, attrs);
  return out;
}

Tensors gradient(const GradientCall& call) {
  const Dim depth = call.in[0].shape()[0];
  return {embedding_gradient(call.in[1], call.dout[0], depth, {}, call.dtype_of(0)), Tensor()};
}

Tensors gradient_gradient(const GradientCall& call) {
  return {Tensor(), cast(embedding(call.dout[0], call.in[0]), call.in[1].dtype())};
}

Tensors onto_gradient(const GradientCall& call) {
  return {call.dout[0], Tensor(), cast(embedding(call.dout[0], call.in[1]), call.in[2].dtype())};
}

Rows rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 2 ? Rows::maps : Rows::mixes;  // a table of samples is not one table
}

Rows gradient_rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 3 ? Rows::sums : Rows::mixes;
}

// Each part of a split batch would add `onto` again, unless that is a part as well (`additive`).
Rows onto_rows(const Attrs&, RowMask in) { return in ? Rows::mixes : Rows::none; }

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result;
  result.bytes = static_cast<double>(in[1].bytes()) + 2 * static_cast<double>(out[0].bytes());
  return result;
}
Cost gradient_cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = static_cast<double>(in.back().elements());
  return result;
}

struct Size {
  const char* name;
  Dim depth, width;
  Shape indices;
  bool benchmark = false;
};

// Indices of the first op are below D, so that all of them are in the table.
std::vector<Size> sizes() {
  return {{"words", 11, 7, Shape{3, 5}},
          {"one_index", 6, 3, Shape{1}},
          {"scalar", 5, 3, Shape{}},
          {"repeated", 3, 2, Shape{2, 13}},
          {"odd_width", 70, 67, Shape{4, 9}},
          {"none", 5, 4, Shape{0, 3}},
          {"no_width", 5, 0, Shape{2}},
          {"gpt_tiny_b8", 1024, 256, Shape{8, 256}, true},
          {"gpt2_b2", 50304, 768, Shape{2, 1024}, true}};
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes())
    out.push_back({size.name,
                   {{{Dtype::float32, {size.depth, size.width}}},
                    {{Dtype::int32, size.indices}, Fill::labels}},
                   {},
                   0,
                   size.benchmark});
  return out;
}

std::vector<Sample> gradient_samples_of(bool onto) {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    std::vector<Dim> dims = size.indices.dims();
    dims.push_back(size.width);
    Sample sample{size.name, {}, {{"depth", size.depth}}, 1e-6, size.benchmark};
    if (onto) sample.in.push_back({{Dtype::float32, {size.depth, size.width}}});
    sample.in.push_back({{Dtype::int32, size.indices}, Fill::labels});
    sample.in.push_back({{Dtype::float32, Shape(std::move(dims))}});
    out.push_back(std::move(sample));
  }
  return out;
}
std::vector<Sample> gradient_samples() { return gradient_samples_of(false); }
std::vector<Sample> onto_samples() { return gradient_samples_of(true); }

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::embedding_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::embedding_gradient_reference}};
constexpr InOut kOntoInPlace[] = {{0, 0}};

}  // namespace
}  // namespace embedding_op

const Op kEmbedding{
    .name = "embedding",
    .summary = "rows of a table picked by index; NaN for an index outside",
    .infer = embedding_op::infer,
    .gradient = embedding_op::gradient,
    .rows = embedding_op::rows,
    .variants = embedding_op::kVariants,
    .cost = embedding_op::cost,
    .samples = embedding_op::samples,
};

const Op kEmbeddingGradient{
    .name = "embedding_gradient",
    .summary = "for each row of the table the sum of dy where it was picked",
    .infer = embedding_op::gradient_infer,
    .gradient = embedding_op::gradient_gradient,
    .rows = embedding_op::gradient_rows,
    .variants = embedding_op::kGradientVariants,
    .cost = embedding_op::gradient_cost,
    .samples = embedding_op::gradient_samples,
};

const Op kEmbeddingGradientOnto{
    .name = "embedding_gradient_onto",
    .summary = "embedding_gradient added to another gradient of the table, in its place",
    .infer = embedding_op::onto_infer,
    .gradient = embedding_op::onto_gradient,
    .in_place = embedding_op::kOntoInPlace,
    .rows = embedding_op::onto_rows,
    .additive = true,
    .variants = embedding_op::kGradientVariants,
    .cost = embedding_op::gradient_cost,
    .samples = embedding_op::onto_samples,
};

const Op kEmbeddingGradientAccumulate{
    .name = "embedding_gradient_accumulate",
    .summary = "adds embedding_gradient to a running sum",
    .infer = embedding_op::onto_infer,
    .next_version = embedding_op::kOntoInPlace,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = embedding_op::kGradientVariants,
    .cost = embedding_op::gradient_cost,
    .samples = embedding_op::onto_samples,
};

Tensor embedding(const Tensor& table, const Tensor& indices) {
  return apply(kEmbedding, {table, indices})[0];
}

Tensor embedding_gradient(const Tensor& indices, const Tensor& dy, Dim depth, const Tensor& onto,
                          std::optional<Dtype> dtype) {
  Attrs attrs{{"depth", depth}};
  if (dtype && *dtype != dy.dtype()) attrs.set("dtype", std::string(name_of(*dtype)));
  if (onto.defined()) return apply(kEmbeddingGradientOnto, {onto, indices, dy}, attrs)[0];
  return apply(kEmbeddingGradient, {indices, dy}, attrs)[0];
}

}  // namespace pl
