#include "op/reduce.h"

#include <algorithm>

#include "base/error.h"
#include "op/accumulate.h"
#include "op/broadcast_to.h"
#include "op/cast.h"
#include "op/concatenate.h"
#include "op/infer.h"
#include "op/pointwise.h"
#include "op/recorder.h"
#include "op/reshape.h"
#include "op/scale.h"
#include "op/transpose.h"

namespace pl {
namespace reduce_op {
namespace {

// Input: x. Attributes: axes (ascending, none negative, each once), keepdims (0 or 1), dtype of the
// result.
Metas infer(const char* op, const Metas& in, const Attrs& attrs) {
  expect_operands(op, 1, 1, in, attrs);
  if (!is_number(in[0].dtype)) reject(op, "a float32, float64, int32 or int64 tensor", in, attrs);
  const auto& axes = attrs.list("axes");
  const bool keepdims = attrs.integer("keepdims", 0);
  std::vector<Dim> dims;
  size_t next = 0;
  for (int axis = 0; axis < in[0].shape.rank(); ++axis) {
    const bool reduced = next < axes.size() && axes[next] == axis;
    if (reduced) ++next;
    if (!reduced) dims.push_back(in[0].shape[axis]);
    if (reduced && keepdims) dims.push_back(1);
  }
  if (next != axes.size())
    reject(op, "different axes, ascending, below the operand's rank", in, attrs);
  checked(op, {in[0]});
  return {{result_dtype(op, in[0].dtype, in, attrs), Shape(std::move(dims))}};
}

Metas infer_sum(const Metas& in, const Attrs& attrs) { return infer("reduce_sum", in, attrs); }

Metas infer_extreme(const char* op, const Metas& in, const Attrs& attrs) {
  Metas out = infer(op, in, attrs);
  for (int64_t axis : attrs.list("axes"))
    if (in[0].shape[static_cast<int>(axis)] == 0)
      reject(op, "at least one element along each axis", in, attrs);
  return out;
}
Metas infer_max(const Metas& in, const Attrs& attrs) {
  return infer_extreme("reduce_max", in, attrs);
}
Metas infer_min(const Metas& in, const Attrs& attrs) {
  return infer_extreme("reduce_min", in, attrs);
}
Metas infer_prod(const Metas& in, const Attrs& attrs) { return infer("reduce_prod", in, attrs); }
Metas infer_norm(const Metas& in, const Attrs& attrs) {
  Metas out = infer("reduce_norm", in, attrs);
  if (!is_real(in[0].dtype)) reject("reduce_norm", "a float32 or float64 tensor", in, attrs);
  return out;
}

bool over_samples(const Attrs& attrs) {
  const auto& axes = attrs.list("axes");
  return !axes.empty() && axes[0] == 0;
}

Rows rows_sum_axes(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return over_samples(attrs) ? Rows::sums : Rows::maps;
}

Rows rows_mix_axes(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return over_samples(attrs) ? Rows::mixes : Rows::maps;
}

// x's shape with 1 for each reduced axis: what a result broadcasts against x as.
std::vector<Dim> kept_shape(const Shape& x, const Attrs& attrs) {
  std::vector<Dim> dims = x.dims();
  for (int64_t axis : attrs.list("axes")) dims[static_cast<size_t>(axis)] = 1;
  return dims;
}

Tensors gradient_sum(const GradientCall& call) {
  const Tensor& x = call.in[0];
  const Tensor dy = cast(reshape(call.dout[0], kept_shape(x.shape(), call.attrs)), x.dtype());
  return {broadcast_to(dy, x.shape(), carries_rows(x))};
}

Tensors gradient_extreme(const GradientCall& call) {
  const Tensor& x = call.in[0];
  const std::vector<Dim> kept = kept_shape(x.shape(), call.attrs);
  const Tensor mask = equal_mask(x, reshape(call.out[0], kept));
  const Tensor count =
      apply(kReduceSum, {mask}, {{"axes", call.attrs.list("axes")}, {"keepdims", int64_t{1}}})[0];
  return {multiply(mask, divide(reshape(call.dout[0], kept), count))};
}

// For each element of x (..., n) along the last axis the product of all others and of dy (..., 1).
// Nothing is divided: an element may be 0.
Tensor product_slopes(const Tensor& x, const Tensor& dy) {
  const Dim n = x.shape().back(), half = n / 2;
  if (n == 1) return dy;
  const Tensor a = slice(x, -1, 0, half), b = slice(x, -1, half, half);
  const Tensor last = n % 2 == 1 ? slice(x, -1, n - 1, 1) : Tensor();
  const Tensor pairs = multiply(a, b);
  const Tensor slopes = product_slopes(pairs, last.defined() ? multiply(dy, last) : dy);
  Tensors parts{multiply(slopes, b), multiply(slopes, a)};
  if (last.defined()) {
    const Attrs attrs{{"axes", std::vector<int64_t>{x.shape().rank() - 1}},
                      {"keepdims", int64_t{1}}};
    parts.push_back(multiply(apply(kReduceProd, {pairs}, attrs)[0], dy));
  }
  return concatenate(parts);
}

// Reduced axes go behind the others, as one.
Tensors gradient_prod(const GradientCall& call) {
  const Tensor& x = call.in[0];
  const auto& axes = call.attrs.list("axes");
  if (x.meta().elements() == 0 || axes.empty()) return {axes.empty() ? call.dout[0] : scale(x, 0)};
  std::vector<int64_t> order, back(static_cast<size_t>(x.shape().rank()));
  std::vector<Dim> rows;
  for (int axis = 0; axis < x.shape().rank(); ++axis)
    if (!std::binary_search(axes.begin(), axes.end(), axis)) {
      order.push_back(axis);
      rows.push_back(x.shape()[axis]);
    }
  order.insert(order.end(), axes.begin(), axes.end());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const Tensor moved = transpose(x, order);
  std::vector<Dim> column = rows;
  rows.push_back(-1);
  column.push_back(1);
  const Tensor dx = product_slopes(reshape(moved, rows), reshape(call.dout[0], column));
  return {transpose(reshape(dx, moved.shape().dims()), back)};
}

Tensors gradient_norm(const GradientCall& call) {
  const Tensor& x = call.in[0];
  const std::vector<Dim> kept = kept_shape(x.shape(), call.attrs);
  return {multiply(x, divide(reshape(call.dout[0], kept), reshape(call.out[0], kept)))};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = static_cast<double>(in[0].elements());
  return result;
}

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, std::vector<int64_t> axes, int64_t keepdims = 0,
                   bool benchmark = false) {
    return Sample{name,
                  {{{Dtype::float32, shape}}},
                  {{"axes", std::move(axes)}, {"keepdims", keepdims}},
                  1e-6,
                  benchmark};
  };
  return {
      sample("all", {3, 5}, {0, 1}),
      sample("scalar", {}, {}),
      sample("no_axis", {2, 3}, {}),
      sample("rows", {37, 5}, {0}),
      sample("rows_keepdims", {5, 3}, {0}, 1),
      sample("columns", {4, 17}, {1}),
      sample("middle", {2, 3, 4}, {1}),
      sample("both_ends", {3, 4, 2}, {0, 2}, 1),
      sample("every_other", {2, 3, 4, 5, 2}, {0, 2, 4}),
      sample("inner_kept", {2, 3, 4, 5, 37}, {1, 3}),
      sample("leading", {2, 3, 2, 5}, {0, 1, 2}),
      sample("ones", {1, 4, 1}, {0, 2}),
      sample("none_kept", {0, 3}, {1}),
      {"int32", {{{Dtype::int32, {3, 4}}}}, {{"axes", std::vector<int64_t>{0}}}},
      sample("bias_b128", {128, 512}, {0}, 0, true),
      sample("images_b256", {256, 26, 26, 32}, {0, 1, 2}, 0, true),
      sample("gpt_bias", {8, 256, 1024}, {0, 1}, 0, true),
      sample("all_large", {256, 4096}, {0, 1}, 0, true),
      sample("rows_of_768", {4096, 768}, {1}, 0, true),
      sample("images_b32", {32, 64, 64, 64}, {1, 2}, 0, true),
  };
}

std::vector<Sample> samples_sum() {
  std::vector<Sample> result = samples();
  result.push_back(
      {"nothing", {{{Dtype::float32, {0, 3}}}}, {{"axes", std::vector<int64_t>{0}}}, 1e-6});
  return result;
}

// Norms are of reals that are not all 0.
std::vector<Sample> samples_norm() {
  std::vector<Sample> result = samples();
  std::erase_if(result, [](const Sample& s) { return s.in[0].meta.dtype != Dtype::float32; });
  return result;
}

constexpr Variant kSumVariants[] = {{"tiled", DeviceKind::cpu, cpu::reduce_sum_tiled}};
constexpr Variant kMaxVariants[] = {{"tiled", DeviceKind::cpu, cpu::reduce_max_tiled}};
constexpr Variant kMinVariants[] = {{"tiled", DeviceKind::cpu, cpu::reduce_min_tiled}};
constexpr Variant kProdVariants[] = {{"tiled", DeviceKind::cpu, cpu::reduce_prod_tiled}};
constexpr Variant kNormVariants[] = {{"tiled", DeviceKind::cpu, cpu::reduce_norm_tiled}};

constexpr AddingOp kAddingSum{"reduce_sum_accumulate", kReduceSum, 0, 1};
Metas infer_accumulate(const Metas& in, const Attrs& attrs) { return kAddingSum.infer(in, attrs); }
Cost cost_accumulate(const Metas& in, const Metas& out, const Attrs& attrs) {
  return kAddingSum.cost(in, out, attrs);
}
std::vector<Sample> samples_accumulate() { return kAddingSum.samples(); }
constexpr Variant kAccumulateVariants[] = {
    {"composed", DeviceKind::cpu, reduce_sum_accumulate_composed}};
constexpr InOut kSumNextVersion[] = {{0, 0}};

// Ascending axes without negative ones; all of them when none is given.
std::vector<int64_t> normalised(const char* op, const Tensor& x, std::vector<int64_t> axes) {
  const int64_t rank = x.shape().rank();
  if (axes.empty()) {
    for (int64_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
    return axes;
  }
  for (int64_t& axis : axes) axis = axis_of(op, axis, static_cast<int>(rank));
  std::sort(axes.begin(), axes.end());
  return axes;
}

Tensor reduce(const Op& op, const Tensor& x, std::vector<int64_t> axes, bool keepdims,
              std::optional<Dtype> dtype = {}) {
  Attrs attrs{{"axes", normalised(op.name, x, std::move(axes))}};
  if (keepdims) attrs.set("keepdims", int64_t{1});
  if (dtype && *dtype != x.dtype()) attrs.set("dtype", std::string(name_of(*dtype)));
  return apply(op, {x}, std::move(attrs))[0];
}

}  // namespace
}  // namespace reduce_op

const Op kReduceSum{
    .name = "reduce_sum",
    .summary = "sum over axes",
    .infer = reduce_op::infer_sum,
    .gradient = reduce_op::gradient_sum,
    .rows = reduce_op::rows_sum_axes,
    .variants = reduce_op::kSumVariants,
    .cost = reduce_op::cost,
    .samples = reduce_op::samples_sum,
};

const Op kReduceMax{
    .name = "reduce_max",
    .summary = "maximum over axes; NaN if one is",
    .infer = reduce_op::infer_max,
    .gradient = reduce_op::gradient_extreme,
    .rows = reduce_op::rows_mix_axes,
    .variants = reduce_op::kMaxVariants,
    .cost = reduce_op::cost,
    .samples = reduce_op::samples,
};

const Op kReduceMin{
    .name = "reduce_min",
    .summary = "minimum over axes; NaN if one is",
    .infer = reduce_op::infer_min,
    .gradient = reduce_op::gradient_extreme,
    .rows = reduce_op::rows_mix_axes,
    .variants = reduce_op::kMinVariants,
    .cost = reduce_op::cost,
    .samples = reduce_op::samples,
};

const Op kReduceProd{
    .name = "reduce_prod",
    .summary = "product over axes",
    .infer = reduce_op::infer_prod,
    .gradient = reduce_op::gradient_prod,
    .rows = reduce_op::rows_mix_axes,
    .variants = reduce_op::kProdVariants,
    .cost = reduce_op::cost,
    .samples = reduce_op::samples_sum,
};

const Op kReduceNorm{
    .name = "reduce_norm",
    .summary = "root of the sum of squares over axes",
    .infer = reduce_op::infer_norm,
    .gradient = reduce_op::gradient_norm,
    .rows = reduce_op::rows_mix_axes,
    .variants = reduce_op::kNormVariants,
    .cost = reduce_op::cost,
    .samples = reduce_op::samples_norm,
};

const Op kReduceSumAccumulate{
    .name = reduce_op::kAddingSum.name,
    .summary = "adds a sum over axes to a running sum",
    .infer = reduce_op::infer_accumulate,
    .next_version = reduce_op::kSumNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = reduce_op::kAccumulateVariants,
    .cost = reduce_op::cost_accumulate,
    .samples = reduce_op::samples_accumulate,
};

std::unique_ptr<Kernel> reduce_sum_accumulate_composed(const PrepareCall& call) {
  return reduce_op::kAddingSum.composed(call);
}

Tensor reduce_sum(const Tensor& x, std::vector<int64_t> axes, bool keepdims,
                  std::optional<Dtype> dtype) {
  return reduce_op::reduce(kReduceSum, x, std::move(axes), keepdims, dtype);
}

Tensor reduce_max(const Tensor& x, std::vector<int64_t> axes, bool keepdims) {
  return reduce_op::reduce(kReduceMax, x, std::move(axes), keepdims);
}

Tensor reduce_min(const Tensor& x, std::vector<int64_t> axes, bool keepdims) {
  return reduce_op::reduce(kReduceMin, x, std::move(axes), keepdims);
}

Tensor reduce_prod(const Tensor& x, std::vector<int64_t> axes, bool keepdims) {
  return reduce_op::reduce(kReduceProd, x, std::move(axes), keepdims);
}

Tensor reduce_norm(const Tensor& x, std::vector<int64_t> axes, bool keepdims) {
  return reduce_op::reduce(kReduceNorm, x, std::move(axes), keepdims);
}

Tensor reduce_mean(const Tensor& x, std::vector<int64_t> axes, bool keepdims) {
  double count = 1;
  for (int64_t axis : reduce_op::normalised("reduce_mean", x, axes))
    count *= static_cast<double>(x.shape()[static_cast<int>(axis)]);
  return scale(reduce_sum(x, std::move(axes), keepdims), 1 / count);
}

Tensor sum_to(const Tensor& x, const Shape& shape, std::optional<Dtype> dtype) {
  if (x.shape() == shape) return x;
  const int extra = x.shape().rank() - shape.rank();
  bool fits = extra >= 0;
  std::vector<int64_t> axes;
  for (int axis = 0; fits && axis < x.shape().rank(); ++axis) {
    const Dim wanted = axis < extra ? 1 : shape[axis - extra];
    if (axis < extra || (wanted == 1 && x.shape()[axis] != 1))
      axes.push_back(axis);
    else
      fits = wanted == x.shape()[axis];
  }
  if (!fits)
    throw UserError("[sum_to] expected a shape that broadcasts to the operand's, received " +
                    shape.text() + " and " + x.shape().text());
  const Tensor sum = axes.empty() ? x : reduce_sum(x, std::move(axes), false, dtype);
  return reshape(sum, shape.dims());
}

}  // namespace pl
