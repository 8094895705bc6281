#include "op/gather.h"

#include "op/cast.h"
#include "op/infer.h"

namespace pl {
namespace gather_op {
namespace {

bool is_index(Dtype dtype) { return dtype == Dtype::int32 || dtype == Dtype::int64; }

// Dimensions of `shape` with those of [axis, axis + gone) replaced.
Shape replaced(const Shape& shape, int axis, int gone, const std::vector<Dim>& by) {
  std::vector<Dim> dims(shape.begin(), shape.begin() + axis);
  dims.insert(dims.end(), by.begin(), by.end());
  dims.insert(dims.end(), shape.begin() + axis + gone, shape.end());
  return Shape(std::move(dims));
}

bool by_each(const Attrs& attrs) { return attrs.integer("each", 0) != 0; }

// Inputs: x (A..., n, B...), indices S or, with attribute `each`, (A..., m, B...). Attributes:
// axis, each, zeros.
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "gather";
  expect_operands(op, 2, 2, in, attrs);
  const Shape &x = in[0].shape, &indices = in[1].shape;
  if (!is_index(in[1].dtype)) reject(op, "indices of int32 or int64", in, attrs);
  const int64_t axis = attrs.integer("axis");
  if (axis < 0 || axis >= x.rank()) reject(op, "an axis below x's rank", in, attrs);
  checked(op, {in[0], in[1]});
  const int at = static_cast<int>(axis);
  if (!by_each(attrs)) return checked(op, {{in[0].dtype, replaced(x, at, 1, indices.dims())}});
  if (indices.rank() != x.rank() || replaced(x, at, 1, {indices[at]}) != indices)
    reject(op, "indices like x, but for the axis", in, attrs);
  return {{in[0].dtype, indices}};
}

// Inputs: indices, dy like gather's result. Attributes: axis, each, depth (n); dtype of the output.
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "gather_gradient";
  expect_operands(op, 2, 2, in, attrs);
  const Shape &indices = in[0].shape, &dy = in[1].shape;
  if (!is_index(in[0].dtype)) reject(op, "indices of int32 or int64", in, attrs);
  if (!is_real(in[1].dtype)) reject(op, "dy of float32 or float64", in, attrs);
  const Dim depth = attrs.integer("depth");
  if (depth < 0) reject(op, "a depth that is not negative", in, attrs);
  const int64_t axis = attrs.integer("axis");
  const int gone = by_each(attrs) ? 1 : indices.rank();
  if (axis < 0 || axis + gone > dy.rank()) reject(op, "an axis of dy", in, attrs);
  checked(op, {in[0], in[1]});
  const int at = static_cast<int>(axis);
  if (by_each(attrs) ? indices != dy : replaced(dy, at, gone, indices.dims()) != dy)
    reject(op, "dy like the result for these indices", in, attrs);
  const Dtype dtype = result_dtype(op, in[1].dtype, in, attrs);
  return checked(op, {{dtype, replaced(dy, at, gone, {depth})}});
}

Tensors gradient(const GradientCall& call) {
  if (!is_floating(call.in[0].dtype())) return {Tensor(), Tensor()};
  const int64_t axis = call.attrs.integer("axis");
  Attrs attrs{{"axis", axis},
              {"each", int64_t{by_each(call.attrs)}},
              {"depth", call.in[0].shape()[static_cast<int>(axis)]}};
  const Dtype dtype = call.dtype_of(0);
  if (dtype != call.dout[0].dtype()) attrs.set("dtype", std::string(name_of(dtype)));
  return {apply(kGatherGradient, {call.in[1], call.dout[0]}, attrs)[0], Tensor()};
}

// What was dropped has no slope.
Tensors gradient_gradient(const GradientCall& call) {
  const Attrs attrs{{"axis", call.attrs.integer("axis")},
                    {"each", int64_t{by_each(call.attrs)}},
                    {"zeros", int64_t{1}}};
  const Tensor picked = apply(kGather, {call.dout[0], call.in[0]}, attrs)[0];
  return {Tensor(), cast(picked, call.in[1].dtype())};
}

// Along dimension 0 rows meet, but for rows of indices into one table.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  if (attrs.integer("axis") == 0) return !by_each(attrs) && in == 2 ? Rows::maps : Rows::mixes;
  return in == (by_each(attrs) ? 3u : 1u) ? Rows::maps : Rows::mixes;
}

Rows gradient_rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  if (attrs.integer("axis") == 0) return !by_each(attrs) && in == 3 ? Rows::sums : Rows::mixes;
  return in == (by_each(attrs) ? 3u : 2u) ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  return {0, static_cast<double>(in[1].bytes()) + 2 * static_cast<double>(out[0].bytes())};
}
Cost gradient_cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = static_cast<double>(in[1].elements());
  return result;
}

struct Size {
  const char* name;
  Shape x, indices;
  int64_t axis, each;
  Dtype index = Dtype::int32;
};

std::vector<Size> sizes() {
  return {{"rows", {11, 7}, {3, 5}, 0, 0},
          {"columns", {3, 4, 9}, {5}, 2, 0, Dtype::int64},
          {"middle", {2, 70, 5}, {3, 2}, 1, 0},
          {"one", {3, 9}, {}, 1, 0},
          {"from_one_row", {9}, {40}, 0, 0},
          {"no_indices", {3, 9}, {0}, 1, 0},
          {"each_of_last", {5, 9}, {5, 33}, 1, 1},
          {"each_of_first", {9, 3, 2}, {4, 3, 2}, 0, 1, Dtype::int64},
          {"no_rows", {0, 9}, {0, 3}, 1, 1}};
}

// Of integers from -9 to 9 but 0: some count from the end, and of short axes some are outside.
std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes())
    out.push_back({size.name,
                   {{{Dtype::float32, size.x}}, {{size.index, size.indices}}},
                   {{"axis", size.axis}, {"each", size.each}, {"zeros", int64_t{1}}},
                   0});
  return out;
}

std::vector<Sample> gradient_samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const int at = static_cast<int>(size.axis);
    const Shape dy = size.each ? size.indices : replaced(size.x, at, 1, size.indices.dims());
    out.push_back({size.name,
                   {{{size.index, size.indices}}, {{Dtype::float32, dy}}},
                   {{"axis", size.axis}, {"each", size.each}, {"depth", size.x[at]}},
                   1e-6});
  }
  return out;
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::gather_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::gather_gradient_reference}};

}  // namespace
}  // namespace gather_op

const Op kGather{
    .name = "gather",
    .summary = "elements along an axis picked by index",
    .infer = gather_op::infer,
    .gradient = gather_op::gradient,
    .rows = gather_op::rows,
    .variants = gather_op::kVariants,
    .cost = gather_op::cost,
    .samples = gather_op::samples,
};

const Op kGatherGradient{
    .name = "gather_gradient",
    .summary = "for each element the sum of dy where it was picked",
    .infer = gather_op::gradient_infer,
    .gradient = gather_op::gradient_gradient,
    .rows = gather_op::gradient_rows,
    .variants = gather_op::kGradientVariants,
    .cost = gather_op::gradient_cost,
    .samples = gather_op::gradient_samples,
};

GatherForm gather_form(const Metas& in, const Metas& out, const Attrs& attrs, bool gradient) {
  const Shape& x = gradient ? out[0].shape : in[0].shape;
  const Shape& indices = gradient ? in[0].shape : in[1].shape;
  const int axis = static_cast<int>(attrs.integer("axis"));
  GatherForm form{.size = x[axis],
                  .each = gather_op::by_each(attrs),
                  .from_end = true,
                  .zeros = attrs.integer("zeros", 0) != 0};
  for (int d = 0; d < axis; ++d) form.outer *= x[d];
  for (int d = axis + 1; d < x.rank(); ++d) form.inner *= x[d];
  form.count = form.each ? indices[axis] : indices.elements();
  return form;
}

uint64_t outside_bits(Dtype dtype, bool zeros) {
  if (zeros) return 0;
  switch (dtype) {
    case Dtype::float32:
      return 0x7FC00000u;
    case Dtype::float64:
      return 0x7FF8000000000000u;
    case Dtype::bfloat16:
      return 0x7FC0u;
    case Dtype::float16:
      return 0x7E00u;
    case Dtype::int32:
      return 0x80000000u;
    case Dtype::int64:
      return 0x8000000000000000u;
    case Dtype::uint8:
      return 255;
    case Dtype::boolean:
      return 1;
  }
  return 0;
}

Tensor gather(const Tensor& x, const Tensor& indices, int64_t axis) {
  return apply(kGather, {x, indices}, {{"axis", axis}, {"each", int64_t{0}}})[0];
}

Tensor gather_each(const Tensor& x, const Tensor& indices, int64_t axis) {
  return apply(kGather, {x, indices}, {{"axis", axis}, {"each", int64_t{1}}})[0];
}

}  // namespace pl
