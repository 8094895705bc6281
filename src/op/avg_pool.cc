#include "op/avg_pool.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace {

constexpr Dim kLargestWindow = Dim{1} << 15;  // along each axis

// x (B, H, W, C). Attributes: pool_size [2], strides [2], padding.
AvgPoolForm form_of(const char* op, const Shape& x, const Metas& in, const Attrs& attrs) {
  if (x.rank() != 4) reject(op, "images (B, H, W, C)", in, attrs);
  checked(op, {{Dtype::float64, x}});
  const std::vector<int64_t>& pool = attrs.list("pool_size");
  if (pool.size() != 2 || std::min(pool[0], pool[1]) < 1 ||
      std::max(pool[0], pool[1]) > kLargestWindow)
    reject(op, "a pool_size of two integers from 1 to 2^15", in, attrs);
  if (attrs.has("dilations")) reject(op, "no dilations", in, attrs);
  return {x[0], x[3], window_of(op, x[1], x[2], pool[0], pool[1], in, attrs)};
}

Shape output_shape(const AvgPoolForm& f) {
  return {f.batch, f.window.h.out, f.window.w.out, f.channels};
}

Metas infer(const Metas& in, const Attrs& attrs) {
  const AvgPoolForm f = avg_pool_form(in, attrs);
  return checked("avg_pool", {{in[0].dtype, output_shape(f)}});
}

Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const AvgPoolForm f = avg_pool_gradient_form(in, attrs);
  return checked("avg_pool_gradient",
                 {{in[0].dtype, Shape{f.batch, f.window.h.in, f.window.w.in, f.channels}}});
}

AvgPoolOptions options_of(const Attrs& attrs) {
  AvgPoolOptions options;
  const auto& pool = attrs.list("pool_size");
  options.pool_size = {pool[0], pool[1]};
  options.strides = {1, 1};
  if (attrs.has("strides")) options.strides = {attrs.list("strides")[0], attrs.list("strides")[1]};
  options.padding = attrs.text("padding", "valid");
  return options;
}

Attrs attrs_of(const AvgPoolOptions& options) {
  const auto& pool = options.pool_size;
  const auto& strides = options.strides == std::array<Dim, 2>{} ? pool : options.strides;
  return {{"pool_size", std::vector<int64_t>(pool.begin(), pool.end())},
          {"strides", std::vector<int64_t>(strides.begin(), strides.end())},
          {"padding", options.padding}};
}

Tensors gradient(const GradientCall& call) {
  return {avg_pool_gradient(call.dout[0], call.in[0].shape(), options_of(call.attrs))};
}
Tensors gradient_gradient(const GradientCall& call) {
  return {avg_pool(call.dout[0], options_of(call.attrs))};
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  const auto& pool = attrs.list("pool_size");
  Cost result = pointwise_cost(in, out, 0);
  const Dim outputs = std::min(in[0].elements(), out[0].elements());
  result.flops = static_cast<double>(outputs) * static_cast<double>(pool[0] * pool[1]);
  return result;
}

struct Case {
  const char* name;
  Shape x;
  std::vector<int64_t> pool, strides;
  const char* padding = "valid";
  bool benchmark = false;
};

std::vector<Case> cases() {
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

Attrs attrs_of(const Case& c) {
  return {{"pool_size", c.pool}, {"strides", c.strides}, {"padding", std::string(c.padding)}};
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Case& c : cases())
    out.push_back({c.name, {{{Dtype::float32, c.x}}}, attrs_of(c), 1e-6, c.benchmark});
  return out;
}

std::vector<Sample> gradient_samples() {
  std::vector<Sample> out;
  for (const Case& c : cases()) {
    Attrs attrs = attrs_of(c);
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

AvgPoolForm avg_pool_form(const Metas& in, const Attrs& attrs) {
  expect_one_real("avg_pool", in, attrs);
  return form_of("avg_pool", in[0].shape, in, attrs);
}

AvgPoolForm avg_pool_gradient_form(const Metas& in, const Attrs& attrs) {
  const char* op = "avg_pool_gradient";
  expect_one_real(op, in, attrs);
  const Dim rows = in[0].shape.rank() > 0 ? in[0].shape[0] : 0;
  const AvgPoolForm f = form_of(op, input_shape_of(op, rows, in, attrs), in, attrs);
  if (in[0].shape != output_shape(f))
    reject(op, "dy of shape " + output_shape(f).text(), in, attrs);
  return f;
}

const Op kAvgPool{
    .name = "avg_pool",
    .summary = "mean of each window, without its padding",
    .infer = infer,
    .gradient = gradient,
    .rows = rows_map,
    .variants = kVariants,
    .cost = cost,
    .samples = samples,
};

const Op kAvgPoolGradient{
    .name = "avg_pool_gradient",
    .summary = "dy shared out among the elements of each window",
    .infer = gradient_infer,
    .gradient = gradient_gradient,
    .rows = rows_map,
    .variants = kGradientVariants,
    .cost = cost,
    .samples = gradient_samples,
};

Tensor avg_pool(const Tensor& x, const AvgPoolOptions& options) {
  return apply(kAvgPool, {x}, attrs_of(options))[0];
}

Tensor avg_pool_gradient(const Tensor& dy, const Shape& input_shape,
                         const AvgPoolOptions& options) {
  Attrs attrs = attrs_of(options);
  attrs.set("input_shape", input_shape.dims());
  return apply(kAvgPoolGradient, {dy}, std::move(attrs))[0];
}

}  // namespace pl
