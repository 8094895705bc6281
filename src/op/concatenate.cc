#include "op/concatenate.h"

#include "base/error.h"
#include "op/infer.h"

namespace pl {
namespace concatenate_op {
namespace {

constexpr size_t kMostParts = 64;  // a row mask has a bit for each

// The axis among the attributes, which count from the front.
int axis_of(const char* op, const Metas& in, const Attrs& attrs) {
  const int64_t axis = attrs.integer("axis");
  if (axis < 0 || axis >= in[0].shape.rank())
    reject(op, "an axis below the operand's rank", in, attrs);
  return static_cast<int>(axis);
}

// Inputs: the parts. Attribute: axis.
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "concatenate";
  expect_operands(op, 1, kMostParts, in, attrs);
  const int axis = axis_of(op, in, attrs);
  checked(op, in);
  Meta out = in[0];
  out.shape[axis] = 0;
  for (const Meta& part : in) {
    Meta other = part;
    if (other.shape.rank() == out.shape.rank()) other.shape[axis] = out.shape[axis];
    if (other != out) reject(op, "parts of one dtype, alike but for the axis", in, attrs);
    out.shape[axis] += part.shape[axis];
    checked(op, {out});
  }
  return {out};
}

// Input: x. Attributes: axis, begin, size.
Metas slice_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "slice";
  expect_operands(op, 1, 1, in, attrs);
  const int axis = axis_of(op, in, attrs);
  checked(op, in);
  const Dim begin = attrs.integer("begin"), size = attrs.integer("size");
  if (begin < 0 || size < 0 || begin > in[0].shape[axis] || size > in[0].shape[axis] - begin)
    reject(op, "a part that lies within the axis", in, attrs);
  Meta out = in[0];
  out.shape[axis] = size;
  return {out};
}

// Input: dy. Attributes: axis, begin, size of the result along the axis.
Metas slice_gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "slice_gradient";
  expect_operands(op, 1, 1, in, attrs);
  const int axis = axis_of(op, in, attrs);
  checked(op, in);
  const Dim begin = attrs.integer("begin"), size = attrs.integer("size");
  if (begin < 0 || begin > size || in[0].shape[axis] > size - begin)
    reject(op, "a part that lies within the result", in, attrs);
  Meta out = in[0];
  out.shape[axis] = size;
  return checked(op, {out});
}

Tensors gradient(const GradientCall& call) {
  const int64_t axis = call.attrs.integer("axis");
  Tensors out(call.in.size());
  Dim begin = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const Dim size = call.in[i].shape()[static_cast<int>(axis)];
    if (call.wants(static_cast<int>(i)) && is_floating(call.in[i].dtype()))
      out[i] = slice(call.dout[0], axis, begin, size);
    begin += size;
  }
  return out;
}

Tensors gradient_of_slice(const GradientCall& call) {
  const int64_t axis = call.attrs.integer("axis");
  return {slice_gradient(call.dout[0], axis, call.attrs.integer("begin"),
                         call.in[0].shape()[static_cast<int>(axis)])};
}

Tensors gradient_of_slice_gradient(const GradientCall& call) {
  const int64_t axis = call.attrs.integer("axis");
  return {slice(call.dout[0], axis, call.attrs.integer("begin"),
                call.in[0].shape()[static_cast<int>(axis)])};
}

// Attribute `parts`: how many there are. Along the samples, or beside a part that has none, the
// batch must stay whole.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const auto parts = static_cast<uint64_t>(attrs.integer("parts"));
  const RowMask all = parts >= 64 ? ~RowMask{0} : (RowMask{1} << parts) - 1;
  return attrs.integer("axis") > 0 && in == all ? Rows::maps : Rows::mixes;
}

Rows slice_rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return attrs.integer("axis") > 0 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas&, const Metas& out, const Attrs&) {
  return {0, 2 * static_cast<double>(out[0].bytes())};
}
Cost slice_gradient_cost(const Metas& in, const Metas& out, const Attrs&) {
  return pointwise_cost(in, out, 0);
}

std::vector<Sample> samples() {
  auto sample = [](const char* name, std::vector<Shape> shapes, int64_t axis,
                   bool benchmark = false) {
    Sample result{
        name, {}, {{"axis", axis}, {"parts", static_cast<int64_t>(shapes.size())}}, 0, benchmark};
    for (Shape& shape : shapes) result.in.push_back({{Dtype::float32, std::move(shape)}});
    return result;
  };
  return {sample("columns", {{3, 2}, {3, 5}}, 1),
          sample("rows", {{2, 3}, {1, 3}, {4, 3}}, 0),
          sample("middle", {{2, 1, 3}, {2, 4, 3}}, 1),
          sample("channels", {{2, 3, 3, 4}, {2, 3, 3, 1}}, 3),
          sample("one", {{2, 3}}, 1),
          sample("some_empty", {{2, 0}, {2, 3}, {2, 0}}, 1),
          sample("vector", {{5}, {2}}, 0),
          {"int32",
           {{{Dtype::int32, {2, 2}}}, {{Dtype::int32, {2, 1}}}},
           {{"axis", int64_t{1}}, {"parts", int64_t{2}}},
           0},
          sample("images_b32", {{32, 28, 28, 64}, {32, 28, 28, 32}}, 3, true)};
}

// Of slice, and of its gradient, where size is that of the whole.
Sample slice_sample(const char* name, Shape shape, int64_t axis, int64_t begin, int64_t size,
                    bool benchmark = false) {
  return {name,
          {{{Dtype::float32, std::move(shape)}}},
          {{"axis", axis}, {"begin", begin}, {"size", size}},
          0,
          benchmark};
}

std::vector<Sample> slice_samples() {
  return {slice_sample("columns", {3, 7}, 1, 2, 3),
          slice_sample("rows", {5, 3}, 0, 1, 3),
          slice_sample("middle", {2, 5, 3}, 1, 0, 4),
          slice_sample("all", {2, 3}, 1, 0, 3),
          slice_sample("nothing", {2, 3}, 1, 3, 0),
          slice_sample("vector", {5}, 0, 4, 1),
          slice_sample("images_b32", {32, 28, 28, 96}, 3, 64, 32, true)};
}

std::vector<Sample> slice_gradient_samples() {
  return {slice_sample("columns", {3, 3}, 1, 2, 7),
          slice_sample("rows", {3, 2}, 0, 1, 5),
          slice_sample("middle", {2, 4, 3}, 1, 0, 5),
          slice_sample("all", {2, 3}, 1, 0, 3),
          slice_sample("nothing", {2, 0}, 1, 3, 3),
          slice_sample("images_b32", {32, 28, 28, 32}, 3, 64, 96, true)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::concatenate_reference}};
constexpr Variant kSliceVariants[] = {{"reference", DeviceKind::cpu, cpu::slice_reference}};
constexpr Variant kSliceGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::slice_gradient_reference}};

}  // namespace
}  // namespace concatenate_op

const Op kConcatenate{
    .name = "concatenate",
    .summary = "tensors one behind the other along an axis",
    .infer = concatenate_op::infer,
    .gradient = concatenate_op::gradient,
    .rows = concatenate_op::rows,
    .variants = concatenate_op::kVariants,
    .cost = concatenate_op::cost,
    .samples = concatenate_op::samples,
};

const Op kSlice{
    .name = "slice",
    .summary = "a part of a tensor along an axis",
    .infer = concatenate_op::slice_infer,
    .gradient = concatenate_op::gradient_of_slice,
    .rows = concatenate_op::slice_rows,
    .variants = concatenate_op::kSliceVariants,
    .cost = concatenate_op::cost,
    .samples = concatenate_op::slice_samples,
};

const Op kSliceGradient{
    .name = "slice_gradient",
    .summary = "zeros with a part put in along an axis",
    .infer = concatenate_op::slice_gradient_infer,
    .gradient = concatenate_op::gradient_of_slice_gradient,
    .rows = concatenate_op::slice_rows,
    .variants = concatenate_op::kSliceGradientVariants,
    .cost = concatenate_op::slice_gradient_cost,
    .samples = concatenate_op::slice_gradient_samples,
};

Tensor concatenate(const Tensors& parts, int64_t axis) {
  if (parts.empty()) throw UserError("[concatenate] expected at least one tensor, received none");
  if (parts.size() > concatenate_op::kMostParts)
    throw UserError("[concatenate] expected at most 64 tensors, received " +
                    std::to_string(parts.size()) + "; concatenate in two steps");
  return apply(kConcatenate, parts,
               {{"axis", axis_of("concatenate", axis, parts[0].shape().rank())},
                {"parts", static_cast<int64_t>(parts.size())}})[0];
}

Tensor slice(const Tensor& x, int64_t axis, Dim begin, Dim size) {
  return apply(
      kSlice, {x},
      {{"axis", axis_of("slice", axis, x.shape().rank())}, {"begin", begin}, {"size", size}})[0];
}

Tensor slice_gradient(const Tensor& dy, int64_t axis, Dim begin, Dim size) {
  return apply(kSliceGradient, {dy},
               {{"axis", axis_of("slice_gradient", axis, dy.shape().rank())},
                {"begin", begin},
                {"size", size}})[0];
}

}  // namespace pl
