#include "op/conv2d.h"

#include <algorithm>

#include "op/broadcast_to.h"
#include "op/conv2d_depthwise.h"
#include "op/conv2d_taps.h"
#include "op/conv2d_winograd.h"
#include "op/infer.h"
#include "op/reduce.h"
#include "op/relu.h"

namespace pl {
namespace conv2d_op {
namespace {

// From x (B, H, W, C) and w (KH, KW, C / groups, O), whether operands or described by attributes.
Conv2dForm form_of(const char* op, const Shape& x, const Shape& w, const Metas& in,
                   const Attrs& attrs) {
  if (x.rank() != 4) reject(op, "images (B, H, W, C)", in, attrs);
  if (w.rank() != 4) reject(op, "a kernel (KH, KW, C / groups, O)", in, attrs);
  for (const Shape* shape : {&x, &w}) checked(op, {{Dtype::float64, *shape}});
  const Dim groups = attrs.integer("groups", 1);
  if (groups < 1 || w[2] < 1 || w[3] < 1 || x[3] % groups != 0 || x[3] / groups != w[2] ||
      w[3] % groups != 0)
    reject(op, "kernel channels C / groups, and C and O multiples of groups", in, attrs);
  const std::string activation = attrs.text("activation", "none");
  if (activation != "none" && activation != "relu")
    reject(op, "activation 'none' or 'relu'", in, attrs);
  const Window window = window_of(op, x[1], x[2], w[0], w[1], in, attrs);
  return {x[0], x[3], w[3], groups, window, false, activation == "relu"};
}

Shape output_shape(const Conv2dForm& f) {
  return {f.batch, f.window.h.out, f.window.w.out, f.filters};
}

void expect_floats(const char* op, const Metas& in, const Attrs& attrs) {
  for (size_t i = 0; i < in.size(); ++i) {
    const Dtype wanted = i < 2 ? in[0].dtype : wide(in[0].dtype);  // a bias stays float32
    if (!is_real(in[i].dtype) || in[i].dtype != wanted)
      reject(op, "one floating dtype (of a bias: float32 beside 16 bits)", in, attrs);
  }
}
RowMask wide_operands(const Attrs&, size_t) { return 0b100; }

// Inputs: x (B, H, W, C), w (KH, KW, C / groups, O), [bias (O,)].
Metas infer(const Metas& in, const Attrs& attrs) {
  const Conv2dForm f = conv2d_form(in, attrs);
  return checked("conv2d", {{in[0].dtype, output_shape(f)}});
}

// Inputs: w, dy (B, OH, OW, O).
Metas input_gradient_infer(const Metas& in, const Attrs& attrs) {
  const Conv2dForm f = conv2d_input_gradient_form(in, attrs);
  return checked("conv2d_input_gradient",
                 {{in[0].dtype, Shape{f.batch, f.window.h.in, f.window.w.in, f.channels}}});
}

// Inputs: x, dy. Outputs: dw, of attribute dtype, and with with_bias db.
Metas weight_gradient_infer(const Metas& in, const Attrs& attrs) {
  const Conv2dForm f = conv2d_weight_gradient_form(in, attrs);
  const Dim depth = f.channels / f.groups;
  const Dtype dtype = result_dtype("conv2d_weight_gradient", in[0].dtype, in, attrs);
  Metas out{{dtype, Shape{f.window.h.kernel, f.window.w.kernel, depth, f.filters}}};
  if (f.bias) out.push_back({wide(in[0].dtype), Shape{f.filters}});
  return checked("conv2d_weight_gradient", std::move(out));
}

Conv2dOptions options_of(const Attrs& attrs) {
  Conv2dOptions options;
  if (attrs.has("strides")) options.strides = {attrs.list("strides")[0], attrs.list("strides")[1]};
  if (attrs.has("dilations"))
    options.dilations = {attrs.list("dilations")[0], attrs.list("dilations")[1]};
  options.padding = attrs.text("padding", "valid");
  if (attrs.has("pads")) std::copy_n(attrs.list("pads").begin(), 4, options.pads.begin());
  options.groups = attrs.integer("groups", 1);
  return options;
}

Attrs attrs_of(const Conv2dOptions& options) {
  Attrs attrs{{"strides", std::vector<int64_t>(options.strides.begin(), options.strides.end())},
              {"padding", options.padding}};
  if (options.padding == "explicit")
    attrs.set("pads", std::vector<int64_t>(options.pads.begin(), options.pads.end()));
  if (options.dilations != std::array<Dim, 2>{1, 1})
    attrs.set("dilations",
              std::vector<int64_t>(options.dilations.begin(), options.dilations.end()));
  if (options.groups != 1) attrs.set("groups", options.groups);
  return attrs;
}

Tensors gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1];
  const Conv2dOptions options = options_of(call.attrs);
  Tensor dy = call.dout[0];
  if (call.attrs.text("activation", "none") == "relu") dy = relu_gradient(call.out[0], dy);
  Tensors out(call.in.size());
  const bool bias = call.in.size() > 2 && call.wants(2);
  // Weights first: their gradient can be used up before the next layer's gradient exists.
  if (call.wants(1)) {
    const auto result = conv2d_weight_gradient(x, dy, w.shape(), bias, options, call.dtype_of(1));
    out[1] = result.dw;
    if (bias) out[2] = result.db;
  } else if (bias) {
    out[2] = reduce_sum(dy, {0, 1, 2}, false, call.dtype_of(2));
  }
  if (call.wants(0)) out[0] = conv2d_input_gradient(w, dy, x.shape(), options);
  return out;
}

// dx is linear in w and in dy.
Tensors input_gradient_gradient(const GradientCall& call) {
  const Tensor &w = call.in[0], &dy = call.in[1], &ddx = call.dout[0];
  const Conv2dOptions options = options_of(call.attrs);
  Tensors out(2);
  if (call.wants(0))
    out[0] = conv2d_weight_gradient(ddx, dy, w.shape(), false, options, call.dtype_of(0)).dw;
  if (call.wants(1)) out[1] = conv2d(ddx, w, options);
  return out;
}

// dw is linear in x and in dy, db in dy alone. Either may be without a gradient.
Tensors weight_gradient_gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &dy = call.in[1], &ddw = call.dout[0];
  const Tensor ddb = call.dout.size() > 1 ? call.dout[1] : Tensor();
  const Conv2dOptions options = options_of(call.attrs);
  Tensors out(2);
  if (call.wants(0) && ddw.defined()) out[0] = conv2d_input_gradient(ddw, dy, x.shape(), options);
  if (call.wants(1))
    out[1] = ddw.defined() ? conv2d(x, ddw, options, ddb) : broadcast_to(ddb, dy.shape(), true);
  return out;
}

Rows rows(const Attrs&, RowMask in) {
  return in == 0 ? Rows::none : in == 1 ? Rows::maps : Rows::mixes;
}
Rows input_gradient_rows(const Attrs&, RowMask in) {
  return in == 0 ? Rows::none : in == 2 ? Rows::maps : Rows::mixes;
}
Rows weight_gradient_rows(const Attrs&, RowMask in) {
  return in == 0 ? Rows::none : in == 3 ? Rows::sums : Rows::mixes;
}

Cost cost_of(const Conv2dForm& f, const Metas& in, const Metas& out) {
  Cost result = pointwise_cost(in, out, 0);
  const double outputs = static_cast<double>(output_shape(f).elements());
  const double inner =
      static_cast<double>(f.window.h.kernel * f.window.w.kernel * (f.channels / f.groups));
  result.flops = 2 * outputs * inner;
  return result;
}
Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  return cost_of(conv2d_form(in, attrs), in, out);
}
Cost input_gradient_cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  return cost_of(conv2d_input_gradient_form(in, attrs), in, out);
}
Cost weight_gradient_cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  return cost_of(conv2d_weight_gradient_form(in, attrs), in, out);
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::conv2d_simd},
    {"winograd", DeviceKind::cpu, cpu::conv2d_winograd},
    {"taps", DeviceKind::cpu, cpu::conv2d_taps},
    {"onednn", DeviceKind::cpu, cpu::conv2d_onednn},
    {"reference", DeviceKind::cpu, cpu::conv2d_reference},
};
constexpr Variant kInputGradientVariants[] = {
    {"winograd", DeviceKind::cpu, cpu::conv2d_input_gradient_winograd},
    {"taps", DeviceKind::cpu, cpu::conv2d_input_gradient_taps},
    {"onednn", DeviceKind::cpu, cpu::conv2d_input_gradient_onednn},
    {"reference", DeviceKind::cpu, cpu::conv2d_input_gradient_reference},
};
constexpr Variant kWeightGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::conv2d_weight_gradient_simd},
    {"depthwise", DeviceKind::cpu, cpu::conv2d_weight_gradient_depthwise},
    {"winograd", DeviceKind::cpu, cpu::conv2d_weight_gradient_winograd},
    {"taps", DeviceKind::cpu, cpu::conv2d_weight_gradient_taps},
    {"onednn", DeviceKind::cpu, cpu::conv2d_weight_gradient_onednn},
    {"reference", DeviceKind::cpu, cpu::conv2d_weight_gradient_reference},
};

}  // namespace
}  // namespace conv2d_op

Conv2dForm conv2d_form(const Metas& in, const Attrs& attrs) {
  expect_operands("conv2d", 2, 3, in, attrs);
  conv2d_op::expect_floats("conv2d", in, attrs);
  Conv2dForm f = conv2d_op::form_of("conv2d", in[0].shape, in[1].shape, in, attrs);
  f.bias = in.size() > 2;
  if (f.bias && in[2].shape != Shape{f.filters})
    reject("conv2d", "a bias of shape " + Shape{f.filters}.text(), in, attrs);
  return f;
}

Conv2dForm conv2d_input_gradient_form(const Metas& in, const Attrs& attrs) {
  const char* op = "conv2d_input_gradient";
  expect_operands(op, 2, 2, in, attrs);
  conv2d_op::expect_floats(op, in, attrs);
  const Shape &w = in[0].shape, &dy = in[1].shape;
  const Dim rows = dy.rank() > 0 ? dy[0] : 0;
  const Conv2dForm f = conv2d_op::form_of(op, input_shape_of(op, rows, in, attrs), w, in, attrs);
  if (dy != conv2d_op::output_shape(f))
    reject(op, "dy of shape " + conv2d_op::output_shape(f).text(), in, attrs);
  return f;
}

Conv2dForm conv2d_weight_gradient_form(const Metas& in, const Attrs& attrs) {
  const char* op = "conv2d_weight_gradient";
  expect_operands(op, 2, 2, in, attrs);
  conv2d_op::expect_floats(op, in, attrs);
  const Shape w(attrs.list("kernel_shape"));
  Conv2dForm f = conv2d_op::form_of(op, in[0].shape, w, in, attrs);
  f.bias = attrs.integer("with_bias", 0) != 0;
  if (in[1].shape != conv2d_op::output_shape(f))
    reject(op, "dy of shape " + conv2d_op::output_shape(f).text(), in, attrs);
  return f;
}

const Op kConv2d{
    .name = "conv2d",
    .summary = "2-D convolution of NHWC images with optional bias and relu",
    .infer = conv2d_op::infer,
    .gradient = conv2d_op::gradient,
    .rows = conv2d_op::rows,
    .wide_operands = conv2d_op::wide_operands,
    .variants = conv2d_op::kVariants,
    .cost = conv2d_op::cost,
    .samples = conv2d_samples,
};

const Op kConv2dInputGradient{
    .name = "conv2d_input_gradient",
    .summary = "gradient of conv2d with respect to its images",
    .infer = conv2d_op::input_gradient_infer,
    .gradient = conv2d_op::input_gradient_gradient,
    .rows = conv2d_op::input_gradient_rows,
    .variants = conv2d_op::kInputGradientVariants,
    .cost = conv2d_op::input_gradient_cost,
    .samples = conv2d_input_gradient_samples,
};

const Op kConv2dWeightGradient{
    .name = "conv2d_weight_gradient",
    .summary = "gradient of conv2d with respect to its kernel and bias",
    .infer = conv2d_op::weight_gradient_infer,
    .gradient = conv2d_op::weight_gradient_gradient,
    .rows = conv2d_op::weight_gradient_rows,
    .variants = conv2d_op::kWeightGradientVariants,
    .cost = conv2d_op::weight_gradient_cost,
    .samples = conv2d_weight_gradient_samples,
};

Tensor conv2d(const Tensor& x, const Tensor& w, const Conv2dOptions& options, const Tensor& bias) {
  Attrs attrs = conv2d_op::attrs_of(options);
  if (options.activation != "none") attrs.set("activation", options.activation);
  Tensors in{x, w};
  if (bias.defined()) in.push_back(bias);
  return apply(kConv2d, std::move(in), std::move(attrs))[0];
}

Tensor conv2d_input_gradient(const Tensor& w, const Tensor& dy, const Shape& input_shape,
                             const Conv2dOptions& options) {
  Attrs attrs = conv2d_op::attrs_of(options);
  attrs.set("input_shape", input_shape.dims());
  return apply(kConv2dInputGradient, {w, dy}, std::move(attrs))[0];
}

Conv2dWeightGradientResult conv2d_weight_gradient(const Tensor& x, const Tensor& dy,
                                                  const Shape& kernel_shape, bool with_bias,
                                                  const Conv2dOptions& options,
                                                  std::optional<Dtype> dtype) {
  Attrs attrs = conv2d_op::attrs_of(options);
  attrs.set("kernel_shape", kernel_shape.dims());
  if (dtype && *dtype != x.dtype()) attrs.set("dtype", std::string(name_of(*dtype)));
  if (with_bias) attrs.set("with_bias", int64_t{1});
  Tensors out = apply(kConv2dWeightGradient, {x, dy}, std::move(attrs));
  return {out[0], with_bias ? out[1] : Tensor()};
}

}  // namespace pl
