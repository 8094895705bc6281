#include "op/max_pool.h"

#include <algorithm>

#include "op/cast.h"
#include "op/infer.h"

namespace pl {
namespace max_pool_op {
namespace {

Metas infer(const Metas& in, const Attrs& attrs) {
  const PoolForm f = max_pool_form(in, attrs);
  return {{in[0].dtype, f.output()}, {max_pool_index(f), f.output()}};
}

// Inputs: index (B, OH, OW, C), dy (B, OH, OW, C).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const PoolForm f = max_pool_gradient_form(in, attrs);
  const Meta out{in[1].dtype, f.input()};
  return {out};
}

Tensors gradient(const GradientCall& call) {
  if (!call.dout[0].defined() || !is_floating(call.in[0].dtype())) return Tensors(1);
  return {
      max_pool_gradient(call.out[1], call.dout[0], call.in[0].shape(), pool_options(call.attrs))};
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  const auto& pool = attrs.list("pool_size");
  Cost result = pointwise_cost(in, out, 0);
  result.flops = static_cast<double>(out[0].elements() * pool[0] * pool[1]);
  return result;
}

Cost gradient_cost(const Metas& in, const Metas& out, const Attrs&) {
  return pointwise_cost(in, out);
}

std::vector<PoolCase> cases() {
  return {
      {"2x2", {2, 6, 8, 3}, {2, 2}, {2, 2}},
      {"2x2_odd", {2, 5, 7, 17}, {2, 2}, {2, 2}},
      {"2x2_wide", {2, 7, 6, 40}, {2, 2}, {2, 2}},
      {"3x3_stride2_same", {2, 7, 9, 5}, {3, 3}, {2, 2}, "same"},
      {"3x2_stride1", {1, 6, 5, 20}, {3, 2}, {1, 1}},
      {"2x2_stride3", {2, 8, 7, 4}, {2, 2}, {3, 3}, "same"},
      {"2x2_same_odd", {2, 5, 7, 16}, {2, 2}, {2, 2}, "same"},
      {"3x3_stride2_explicit", {2, 8, 7, 18}, {3, 3}, {2, 2}, "explicit", false, {1, 1, 1, 1}},
      {"3x3_stride1_same", {2, 5, 6, 33}, {3, 3}, {1, 1}, "same"},
      {"16x17_stride2", {1, 19, 23, 5}, {16, 17}, {2, 3}, "same"},
      {"18x16_disjoint", {1, 37, 32, 18}, {18, 16}, {18, 16}},
      {"resnet_stem_b32", {32, 32, 32, 64}, {3, 3}, {2, 2}, "explicit", true, {1, 1, 1, 1}},
      {"mnist_cnn_1_b256", {256, 26, 26, 32}, {2, 2}, {2, 2}, "valid", true},
      {"mnist_cnn_2_b256", {256, 11, 11, 64}, {2, 2}, {2, 2}, "valid", true},
  };
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const PoolCase& c : cases())
    out.push_back({c.name, {{{Dtype::float32, c.x}}}, c.attrs(), 1e-6, c.benchmark});
  const PoolCase whole{"integers", {2, 5, 7, 3}, {3, 2}, {2, 1}, "same"};
  out.push_back({"int32", {{{Dtype::int32, whole.x}}}, whole.attrs()});
  out.push_back({"bytes", {{{Dtype::uint8, whole.x}, Fill::bytes}}, whole.attrs()});
  return out;
}

// Indices come as zeros: with "same" padding that may point at padding, which the gradient drops.
std::vector<Sample> gradient_samples() {
  std::vector<Sample> out;
  for (const PoolCase& c : cases()) {
    Attrs attrs = c.attrs();
    const Shape y = infer({{Dtype::float32, c.x}}, attrs)[0].shape;
    attrs.set("input_shape", c.x.dims());
    out.push_back({c.name,
                   {{infer({{Dtype::float32, c.x}}, attrs)[1], Fill::zeros}, {{Dtype::float32, y}}},
                   attrs,
                   1e-6,
                   c.benchmark});
  }
  return out;
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::max_pool_simd},
    {"reference", DeviceKind::cpu, cpu::max_pool_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::max_pool_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::max_pool_gradient_reference},
};

}  // namespace
}  // namespace max_pool_op

PoolForm max_pool_form(const Metas& in, const Attrs& attrs) {
  expect_operands("max_pool", 1, 1, in, attrs);
  if (!is_number(in[0].dtype) && in[0].dtype != Dtype::uint8)
    reject("max_pool", "a floating dtype, int32, int64 or uint8", in, attrs);
  return pool_form("max_pool", in[0].shape, in, attrs);
}

Dtype max_pool_index(const PoolForm& form) {
  constexpr Dim kBytes = 255;
  return form.window.h.kernel * form.window.w.kernel <= kBytes ? Dtype::uint8 : Dtype::int32;
}

PoolForm max_pool_gradient_form(const Metas& in, const Attrs& attrs) {
  const char* op = "max_pool_gradient";
  expect_operands(op, 2, 2, in, attrs);
  if (!is_real(in[1].dtype) || in[0].shape != in[1].shape)
    reject(op, "an index and a float32 or float64 dy of one shape", in, attrs);
  const Dim rows = in[1].shape.rank() > 0 ? in[1].shape[0] : 0;
  const PoolForm f = pool_form(op, input_shape_of(op, rows, in, attrs), in, attrs);
  if (in[1].shape != f.output()) reject(op, "dy of shape " + f.output().text(), in, attrs);
  if (in[0].dtype != max_pool_index(f))
    reject(op, "an index of dtype " + std::string(name_of(max_pool_index(f))), in, attrs);
  return f;
}

const Op kMaxPool{
    .name = "max_pool",
    .summary = "largest element of each window, and its position: a byte, if the window allows",
    .infer = max_pool_op::infer,
    .gradient = max_pool_op::gradient,
    .rows = rows_map,
    .variants = max_pool_op::kVariants,
    .cost = max_pool_op::cost,
    .samples = max_pool_op::samples,
};

const Op kMaxPoolGradient{
    .name = "max_pool_gradient",
    .summary = "dy put where max_pool found its maxima",
    .infer = max_pool_op::gradient_infer,
    .rows = rows_map,
    .variants = max_pool_op::kGradientVariants,
    .cost = max_pool_op::gradient_cost,
    .samples = max_pool_op::gradient_samples,
};

MaxPoolResult max_pool_with_index(const Tensor& x, const PoolOptions& options) {
  const bool flags = x.defined() && x.dtype() == Dtype::boolean;
  Tensors out = apply(kMaxPool, {flags ? cast(x, Dtype::int32) : x}, pool_attrs(options));
  return {out[0], out[1]};
}

Tensor max_pool(const Tensor& x, const PoolOptions& options) {
  return max_pool_with_index(x, options).y;
}

Tensor max_pool_gradient(const Tensor& index, const Tensor& dy, const Shape& input_shape,
                         const PoolOptions& options) {
  Attrs attrs = pool_attrs(options);
  attrs.set("input_shape", input_shape.dims());
  return apply(kMaxPoolGradient, {index, dy}, std::move(attrs))[0];
}

}  // namespace pl
