#include "op/layer_norm.h"

#include "op/broadcast_to.h"
#include "op/cast.h"
#include "op/infer.h"
#include "op/pointwise.h"
#include "op/recorder.h"
#include "op/reduce.h"
#include "op/reshape.h"
#include "op/scale.h"

namespace pl {
namespace layer_norm_op {
namespace {

// Dimensions of x (..., D) without the last.
Shape outer_shape(const Shape& x) {
  std::vector<Dim> dims = x.dims();
  dims.pop_back();
  return Shape(std::move(dims));
}

// x at operand 0: at least (rows, D) with D > 0, of a dtype that the loops know.
void expect_vectors(const char* op, const Metas& in, const Attrs& attrs) {
  const Meta& x = in[0];
  if (!is_real(x.dtype) || x.shape.rank() < 2 || x.shape.back() < 1)
    reject(op, "x (..., D) with two dimensions or more, float32 or float64", in, attrs);
  checked(op, {x});
}

// Parameters and moments are float32 where x has 16 bits.
Meta parameter_of(const Meta& x) { return {wide(x.dtype), Shape{x.shape.back()}}; }
Meta moment_of(const Meta& x) { return {wide(x.dtype), outer_shape(x.shape)}; }
RowMask wide_operands(const Attrs&, size_t) { return 0b110; }
RowMask gradient_wide_operands(const Attrs&, size_t) { return 0b1110; }
RowMask parameter_gradient_wide_operands(const Attrs&, size_t) { return 0b110; }

// Inputs: x, gamma, beta. Attribute: epsilon. Outputs: y, mean, rstd.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("layer_norm", 3, 3, in, attrs);
  expect_vectors("layer_norm", in, attrs);
  if (in[1] != parameter_of(in[0]) || in[2] != parameter_of(in[0]))
    reject("layer_norm", "gamma and beta of x's last dimension", in, attrs);
  if (!(attrs.real("epsilon", -1) >= 0)) reject("layer_norm", "epsilon >= 0", in, attrs);
  return {in[0], moment_of(in[0]), moment_of(in[0])};
}

// Inputs: x, gamma, mean, rstd, dy.
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "layer_norm_gradient";
  expect_operands(op, 5, 5, in, attrs);
  expect_vectors(op, in, attrs);
  const Meta moment = moment_of(in[0]);
  if (in[1] != parameter_of(in[0]) || in[2] != moment || in[3] != moment || in[4] != in[0])
    reject(op, "x (..., D), gamma (D,), mean (...), rstd (...) and dy (..., D)", in, attrs);
  return {in[0]};
}

// Inputs: x, mean, rstd, dy. Outputs: dgamma, dbeta.
Metas parameter_gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "layer_norm_parameter_gradient";
  expect_operands(op, 4, 4, in, attrs);
  expect_vectors(op, in, attrs);
  const Meta moment = moment_of(in[0]);
  if (in[1] != moment || in[2] != moment || in[3] != in[0])
    reject(op, "x (..., D), mean (...), rstd (...) and dy (..., D)", in, attrs);
  return {parameter_of(in[0]), parameter_of(in[0])};
}

Tensor column(const Tensor& moment, const Shape& x) {
  std::vector<Dim> dims = x.dims();
  dims.back() = 1;
  return reshape(moment, std::move(dims));
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? add(a, b) : a;
}

// What reaches x through the other two outputs: mean' = 1 / D, rstd' = -rstd^3 * (x - mean) / D.
Tensor through_moments(const GradientCall& call) {
  const Tensor &x = call.in[0], &dmean = call.dout[1], &drstd = call.dout[2];
  const double share = 1 / static_cast<double>(x.shape().back());
  Tensor dx;
  if (drstd.defined()) {
    const Tensor &mean = call.out[1], &rstd = call.out[2];
    const Tensor factor = scale(multiply(drstd, multiply(rstd, square(rstd))), -share);
    dx = multiply(subtract(x, column(mean, x.shape())), column(factor, x.shape()));
  }
  if (dmean.defined()) {
    const Tensor flat = column(scale(dmean, share), x.shape());
    dx = dx.defined() ? add(dx, flat) : add(scale(x, 0), flat);
  }
  return dx;
}

Tensors gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &gamma = call.in[1], &dy = call.dout[0];
  const Tensor &mean = call.out[1], &rstd = call.out[2];
  Tensors out(3);
  if (dy.defined() && (call.wants(1) || call.wants(2))) {
    const auto parameters = layer_norm_parameter_gradient(x, mean, rstd, dy);
    out[1] = parameters.dgamma;
    out[2] = parameters.dbeta;
  }
  if (call.wants(0)) {
    if (dy.defined()) out[0] = layer_norm_gradient(x, gamma, mean, rstd, dy);
    out[0] = sum_of(out[0], through_moments(call));
  }
  return out;
}

// Of the sums over the last dimension of x, in the shape of moments.
Tensor row_sums(const Tensor& x) { return reduce_sum(x, {-1}); }

// What the gradients' gradients work with: h = (x - mean) * rstd, with moments as columns.
struct Normalized {
  Normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd)
      : r(cast(column(rstd, x.shape()), x.dtype())),
        centred(subtract(x, cast(column(mean, x.shape()), x.dtype()))),
        h(multiply(centred, r)) {}
  // What reaches x, mean and rstd through h.
  void pull(const Tensor& dh, Tensor* dx, Tensor* dmean, Tensor* drstd, Dtype moments) const {
    *dx = multiply(dh, r);
    *dmean = cast(negative(row_sums(*dx)), moments);
    *drstd = cast(row_sums(multiply(dh, centred)), moments);
  }
  Tensor r, centred, h;
};
Tensor row_mean(const Tensor& x) { return reduce_mean(x, {-1}, true); }

// dx = r * (g - mean(g) - h * mean(g * h)) with g = dy * gamma is linear and symmetric in g.
Tensors gradient_gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &dy = call.in[4], &u = call.dout[0];
  const Tensor gamma = cast(call.in[1], x.dtype());
  const Normalized n(x, call.in[2], call.in[3]);
  const Tensor g = multiply(dy, gamma);
  const Tensor gh = row_mean(multiply(g, n.h)), uh = row_mean(multiply(u, n.h));
  auto rest = [&](const Tensor& z, const Tensor& zh) {
    return subtract(subtract(z, row_mean(z)), multiply(n.h, zh));
  };
  const Tensor dg = multiply(n.r, rest(u, uh));
  Tensors out(5);
  n.pull(negative(multiply(n.r, add(multiply(u, gh), multiply(g, uh)))), &out[0], &out[2], &out[3],
         call.in[3].dtype());
  out[3] = add(out[3], cast(row_sums(multiply(u, rest(g, gh))), out[3].dtype()));
  out[1] = cast(sum_to(multiply(dg, dy), gamma.shape()), call.in[1].dtype());
  out[4] = multiply(dg, gamma);
  return out;
}

// dgamma = sum(dy * h), dbeta = sum(dy), over all but the last dimension.
Tensors parameter_gradient_gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &dy = call.in[3], &of_gamma = call.dout[0], &of_beta = call.dout[1];
  Tensors out(4);
  if (of_gamma.defined()) {
    const Normalized n(x, call.in[1], call.in[2]);
    const Tensor v = cast(of_gamma, x.dtype());
    n.pull(multiply(dy, v), &out[0], &out[1], &out[2], call.in[2].dtype());
    out[3] = multiply(n.h, v);
  }
  if (of_beta.defined())
    out[3] = sum_of(out[3], broadcast_to(cast(of_beta, x.dtype()), x.shape(), carries_rows(x)));
  return out;
}

// gamma and beta belong to all samples.
Rows rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b001 ? Rows::maps : Rows::mixes;
}
Rows gradient_rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b11101 ? Rows::maps : Rows::mixes;
}
Rows parameter_gradient_rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b1111 ? Rows::sums : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 6); }
Cost parameter_cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = 5 * static_cast<double>(in[0].elements());
  return result;
}

struct Size {
  const char* name;
  Shape x;
  bool benchmark = false;
};
std::vector<Size> sizes() {
  return {{"matrix", {5, 7}},
          {"sequence", {2, 3, 33}},
          {"one_feature", {4, 1}},
          {"no_rows", {0, 4}},
          {"wide", {3, 1031}},
          {"long", {70, 18}},
          {"four", {2, 2, 3, 16}},
          {"gpt_b1", {1, 256, 256}, true},
          {"gpt_b8", {8, 256, 256}, true}};
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const Meta x{Dtype::float32, size.x};
    // With one feature the variance is 0, and epsilon alone decides rstd.
    const double epsilon = size.x.back() == 1 ? 0.5 : 1e-3;
    out.push_back({size.name,
                   {{x}, {parameter_of(x)}, {parameter_of(x)}},
                   {{"epsilon", epsilon}},
                   1e-6,
                   size.benchmark});
  }
  return out;
}

std::vector<Sample> gradient_samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const Meta x{Dtype::float32, size.x};
    out.push_back({size.name,
                   {{x}, {parameter_of(x)}, {moment_of(x)}, {moment_of(x), Fill::positive}, {x}},
                   {},
                   2e-6,
                   size.benchmark});
  }
  return out;
}

std::vector<Sample> parameter_gradient_samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const Meta x{Dtype::float32, size.x};
    out.push_back({size.name,
                   {{x}, {moment_of(x)}, {moment_of(x), Fill::positive}, {x}},
                   {},
                   2e-6,
                   size.benchmark});
  }
  return out;
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::layer_norm_simd},
    {"reference", DeviceKind::cpu, cpu::layer_norm_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::layer_norm_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::layer_norm_gradient_reference},
};
constexpr Variant kParameterGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::layer_norm_parameter_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::layer_norm_parameter_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{4, 0}, {0, 0}};

}  // namespace
}  // namespace layer_norm_op

const Op kLayerNorm{
    .name = "layer_norm",
    .summary = "mean 0 and variance 1 along the last axis, then gamma and beta",
    .infer = layer_norm_op::infer,
    .gradient = layer_norm_op::gradient,
    .in_place = layer_norm_op::kInPlace,
    .rows = layer_norm_op::rows,
    .cut = Cut::rows,
    .wide_operands = layer_norm_op::wide_operands,
    .variants = layer_norm_op::kVariants,
    .cost = layer_norm_op::cost,
    .samples = layer_norm_op::samples,
};

const Op kLayerNormGradient{
    .name = "layer_norm_gradient",
    .summary = "gradient of layer_norm for its input",
    .infer = layer_norm_op::gradient_infer,
    .gradient = layer_norm_op::gradient_gradient,
    .in_place = layer_norm_op::kGradientInPlace,
    .rows = layer_norm_op::gradient_rows,
    .cut = Cut::rows,
    .wide_operands = layer_norm_op::gradient_wide_operands,
    .variants = layer_norm_op::kGradientVariants,
    .cost = layer_norm_op::cost,
    .samples = layer_norm_op::gradient_samples,
};

const Op kLayerNormParameterGradient{
    .name = "layer_norm_parameter_gradient",
    .summary = "gradients of layer_norm for gamma and beta",
    .infer = layer_norm_op::parameter_gradient_infer,
    .gradient = layer_norm_op::parameter_gradient_gradient,
    .rows = layer_norm_op::parameter_gradient_rows,
    .wide_operands = layer_norm_op::parameter_gradient_wide_operands,
    .variants = layer_norm_op::kParameterGradientVariants,
    .cost = layer_norm_op::parameter_cost,
    .samples = layer_norm_op::parameter_gradient_samples,
};

LayerNormResult layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                           double epsilon) {
  Tensors out = apply(kLayerNorm, {x, gamma, beta}, {{"epsilon", epsilon}});
  return {out[0], out[1], out[2]};
}

Tensor layer_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& mean,
                           const Tensor& rstd, const Tensor& dy) {
  return apply(kLayerNormGradient, {x, gamma, mean, rstd, dy})[0];
}

LayerNormParameterGradient layer_norm_parameter_gradient(const Tensor& x, const Tensor& mean,
                                                         const Tensor& rstd, const Tensor& dy) {
  Tensors out = apply(kLayerNormParameterGradient, {x, mean, rstd, dy});
  return {out[0], out[1]};
}

}  // namespace pl
