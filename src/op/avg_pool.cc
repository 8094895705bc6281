#include "op/avg_pool.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace avg_pool_op {
namespace {

Metas infer(const Metas& in, const Attrs& attrs) {
  const PoolForm f = avg_pool_form(in, attrs);
  return checked("avg_pool", {{in[0].dtype, f.output()}});
}

Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const PoolForm f = avg_pool_gradient_form(in, attrs);
  return checked("avg_pool_gradient", {{in[0].dtype, f.input()}});
}

Tensors gradient(const GradientCall& call) {
  return {avg_pool_gradient(call.dout[0], call.in[0].shape(), pool_options(call.attrs))};
}
Tensors gradient_gradient(const GradientCall& call) {
  return {avg_pool(call.dout[0], pool_options(call.attrs))};
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  const auto& pool = attrs.list("pool_size");
  Cost result = pointwise_cost(in, out, 0);
  const Dim outputs = std::min(in[0].elements(), out[0].elements());
  result.flops = static_cast<double>(outputs) * static_cast<double>(pool[0] * pool[1]);
  return result;
}

std::vector<PoolCase> cases() {
  return {
      {"2x2", {2, 6, 8, 3}, {2, 2}, {2, 2}},
      {"2x2_odd", {2, 5, 7, 17}, {2, 2}, {2, 2}},
      {"3x3_stride2_same", {2, 7, 9, 5}, {3, 3}, {2, 2}, "same"},
      {"3x2_stride1_same", {1, 6, 5, 20}, {3, 2}, {1, 1}, "same"},
      {"2x2_stride3", {2, 8, 7, 4}, {2, 2}, {3, 3}, "same"},
      {"whole", {2, 4, 3, 6}, {4, 3}, {1, 1}},
      {"densenet_b32", {32, 16, 16, 128}, {2, 2}, {2, 2}, "valid", true},
  };
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const PoolCase& c : cases())
    out.push_back({c.name, {{{Dtype::float32, c.x}}}, c.attrs(), 1e-6, c.benchmark});
  return out;
}

std::vector<Sample> gradient_samples() {
  std::vector<Sample> out;
  for (const PoolCase& c : cases()) {
    Attrs attrs = c.attrs();
    const Shape y = infer({{Dtype::float32, c.x}}, attrs)[0].shape;
    attrs.set("input_shape", c.x.dims());
    out.push_back({c.name, {{{Dtype::float32, y}}}, attrs, 1e-6, c.benchmark});
  }
  return out;
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::avg_pool_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::avg_pool_gradient_reference}};

}  // namespace
}  // namespace avg_pool_op

PoolForm avg_pool_form(const Metas& in, const Attrs& attrs) {
  expect_one_real("avg_pool", in, attrs);
  return pool_form("avg_pool", in[0].shape, in, attrs);
}

PoolForm avg_pool_gradient_form(const Metas& in, const Attrs& attrs) {
  const char* op = "avg_pool_gradient";
  expect_one_real(op, in, attrs);
  const Dim rows = in[0].shape.rank() > 0 ? in[0].shape[0] : 0;
  const PoolForm f = pool_form(op, input_shape_of(op, rows, in, attrs), in, attrs);
  if (in[0].shape != f.output()) reject(op, "dy of shape " + f.output().text(), in, attrs);
  return f;
}

const Op kAvgPool{
    .name = "avg_pool",
    .summary = "mean of each window, without its padding",
    .infer = avg_pool_op::infer,
    .gradient = avg_pool_op::gradient,
    .rows = rows_map,
    .variants = avg_pool_op::kVariants,
    .cost = avg_pool_op::cost,
    .samples = avg_pool_op::samples,
};

const Op kAvgPoolGradient{
    .name = "avg_pool_gradient",
    .summary = "dy shared out among the elements of each window",
    .infer = avg_pool_op::gradient_infer,
    .gradient = avg_pool_op::gradient_gradient,
    .rows = rows_map,
    .variants = avg_pool_op::kGradientVariants,
    .cost = avg_pool_op::cost,
    .samples = avg_pool_op::gradient_samples,
};

Tensor avg_pool(const Tensor& x, const PoolOptions& options) {
  return apply(kAvgPool, {x}, pool_attrs(options))[0];
}

Tensor avg_pool_gradient(const Tensor& dy, const Shape& input_shape, const PoolOptions& options) {
  Attrs attrs = pool_attrs(options);
  attrs.set("input_shape", input_shape.dims());
  return apply(kAvgPoolGradient, {dy}, std::move(attrs))[0];
}

}  // namespace pl
