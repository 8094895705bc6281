#include "op/group_norm.h"

#include "op/cast.h"
#include "op/infer.h"
#include "op/pointwise.h"
#include "op/reduce.h"
#include "op/reshape.h"
#include "op/scale.h"

namespace pl {
namespace group_norm_op {
namespace {

// x at operand 0, of a dtype that the loops know.
void expect_channels(const char* op, const Metas& in, const Attrs& attrs) {
  const Meta& x = in[0];
  bool holds = is_real(x.dtype) && x.shape.rank() >= 2;
  for (int d = 1; holds && d < x.shape.rank(); ++d) holds = x.shape[d] >= 1;
  if (!holds)
    reject(op, "x (B, ..., C) with a position and a channel or more, float32 or float64", in,
           attrs);
  checked(op, {x});
}

// Parameters, moments and sums are float32 where x has 16 bits.
Meta parameter_of(const Meta& x) { return {wide(x.dtype), Shape{x.shape.back()}}; }
Meta moment_of(const Meta& x, Dim groups) { return {wide(x.dtype), Shape{x.shape[0], groups}}; }
Meta sum_of(const Meta& x) { return {wide(x.dtype), Shape{x.shape[0], x.shape.back()}}; }
RowMask wide_operands(const Attrs&, size_t) { return 0b110; }
RowMask sums_wide_operands(const Attrs&, size_t) { return 0b110; }
RowMask gradient_wide_operands(const Attrs&, size_t) { return 0b1101110; }

// Inputs: x, gamma, beta. Attributes: groups, epsilon. Outputs: y, mean, rstd.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("group_norm", 3, 3, in, attrs);
  expect_channels("group_norm", in, attrs);
  if (in[1] != parameter_of(in[0]) || in[2] != parameter_of(in[0]))
    reject("group_norm", "gamma and beta of x's channels", in, attrs);
  const int64_t groups = attrs.integer("groups", 0);
  if (groups < 1 || in[0].shape.back() % groups != 0)
    reject("group_norm", "a number of groups that divides the channels", in, attrs);
  if (!(attrs.real("epsilon", -1) >= 0)) reject("group_norm", "epsilon >= 0", in, attrs);
  return {in[0], moment_of(in[0], groups), moment_of(in[0], groups)};
}

// The groups that a moment says; 0: it does not belong to x.
Dim groups_of(const Meta& x, const Meta& moment) {
  if (moment.shape.rank() != 2 || moment.shape[1] < 1) return 0;
  const Dim groups = moment.shape[1];
  return x.shape.back() % groups == 0 && moment == moment_of(x, groups) ? groups : 0;
}

// Inputs: x, mean, rstd, dy. Outputs: the sums of dy * n and of dy.
Metas sums_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "group_norm_sums";
  expect_operands(op, 4, 4, in, attrs);
  expect_channels(op, in, attrs);
  if (groups_of(in[0], in[1]) == 0 || in[2] != in[1] || in[3] != in[0])
    reject(op, "x (B, ..., C), mean and rstd (B, groups) and dy (B, ..., C)", in, attrs);
  return {sum_of(in[0]), sum_of(in[0])};
}

// Inputs: x, gamma, mean, rstd, dy and the sums of dy * n and of dy.
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "group_norm_gradient";
  expect_operands(op, 7, 7, in, attrs);
  expect_channels(op, in, attrs);
  if (in[1] != parameter_of(in[0]) || groups_of(in[0], in[2]) == 0 || in[3] != in[2] ||
      in[4] != in[0] || in[5] != sum_of(in[0]) || in[6] != sum_of(in[0]))
    reject(
        op,
        "x (B, ..., C), gamma (C,), mean and rstd (B, groups), dy (B, ..., C) and two sums (B, C)",
        in, attrs);
  return {in[0]};
}

// What gradients work with: everything as (B, positions, groups, channels of a group), with ones
// where a tensor has no such dimension.
struct Grouped {
  Grouped(const Tensor& x, const Tensor& mean_, const Tensor& rstd_)
      : form(group_norm_form(x.meta(), mean_.shape()[1])),
        mean(moment(mean_)),
        rstd(moment(rstd_)),
        centred(subtract(whole(x), mean)),
        normal(multiply(centred, rstd)) {}
  Tensor whole(const Tensor& x) const {
    return reshape(cast(x, wide(x.dtype())),
                   {x.shape()[0], form.positions, form.groups, form.each});
  }
  Tensor moment(const Tensor& x) const { return reshape(x, {x.shape()[0], 1, form.groups, 1}); }
  Tensor parameter(const Tensor& x) const { return reshape(x, {1, 1, form.groups, form.each}); }
  Tensor sum(const Tensor& x) const {
    return reshape(x, {x.shape()[0], 1, form.groups, form.each});
  }
  Tensor over_groups(const Tensor& x) const { return reduce_sum(x, {1, 3}, true); }
  double share() const { return 1 / static_cast<double>(form.count()); }

  GroupNormForm form;
  Tensor mean, rstd, centred, normal;
};
Tensor like(const Tensor& value, const Tensor& x) {
  return cast(reshape(value, x.shape().dims()), x.dtype());
}
Tensor added(const Tensor& a, const Tensor& b) { return a.defined() ? add(a, b) : b; }

// What reaches x through mean and rstd: mean' = 1 / n, rstd' = -rstd^3 * (x - mean) / n.
Tensor through_moments(const GradientCall& call, const Tensor& so_far) {
  const Tensor &x = call.in[0], &dmean = call.dout[1], &drstd = call.dout[2];
  Tensor dx = so_far;
  if (!dmean.defined() && !drstd.defined()) return dx;
  const Grouped g(x, call.out[1], call.out[2]);
  if (drstd.defined()) {
    const Tensor cubed = multiply(g.rstd, square(g.rstd));
    const Tensor factor = scale(multiply(g.moment(drstd), cubed), -g.share());
    dx = added(dx, like(multiply(g.centred, factor), x));
  }
  if (dmean.defined()) {
    const Tensor flat = scale(g.moment(dmean), g.share());
    dx = added(dx, like(add(scale(g.centred, 0), flat), x));
  }
  return dx;
}

Tensors gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &gamma = call.in[1], &dy = call.dout[0];
  const Tensor &mean = call.out[1], &rstd = call.out[2];
  Tensors out(3);
  if (dy.defined()) {
    const GroupNormSums sums = group_norm_sums(x, mean, rstd, dy);
    if (call.wants(1)) out[1] = reduce_sum(sums.of_normal, {0});
    if (call.wants(2)) out[2] = reduce_sum(sums.of_dy, {0});
    if (call.wants(0)) out[0] = group_norm_gradient(x, gamma, mean, rstd, dy, sums);
  }
  if (call.wants(0)) out[0] = through_moments(call, out[0]);
  return out;
}

// What reaches x, mean and rstd through n.
void pull(const Grouped& g, const Tensor& dn, const GradientCall& call, Tensor* dx, Tensor* dmean,
          Tensor* drstd) {
  const Shape& moments = call.in.size() == 4 ? call.in[1].shape() : call.in[2].shape();
  const Tensor flat = multiply(dn, g.rstd);
  *dx = like(flat, call.in[0]);
  *dmean = reshape(negative(g.over_groups(flat)), moments.dims());
  *drstd = reshape(g.over_groups(multiply(dn, g.centred)), moments.dims());
}

Tensors sums_gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &dy = call.in[3], &of_normal = call.dout[0], &of_dy = call.dout[1];
  const Grouped g(x, call.in[1], call.in[2]);
  Tensors out(4);
  Tensor ddy;
  if (of_normal.defined()) {
    const Tensor factor = g.sum(of_normal);
    pull(g, multiply(g.whole(dy), factor), call, &out[0], &out[1], &out[2]);
    ddy = multiply(g.normal, factor);
  }
  if (of_dy.defined())
    ddy = ddy.defined() ? add(ddy, g.sum(of_dy)) : add(scale(g.centred, 0), g.sum(of_dy));
  out[3] = like(ddy, dy);
  return out;
}

// dx = rstd * (dy * gamma - a - n * b), where a and b are averages that the sums give.
Tensors gradient_gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &dy = call.in[4];
  const Grouped g(x, call.in[2], call.in[3]);
  const Tensor gamma = g.parameter(call.in[1]), u = g.whole(call.dout[0]);
  const Tensor of_normal = g.sum(call.in[5]), of_dy = g.sum(call.in[6]);
  auto average = [&](const Tensor& sums) {
    return scale(reduce_sum(multiply(sums, gamma), {3}, true), g.share());
  };
  const Tensor a = average(of_dy), b = average(of_normal), ru = multiply(g.rstd, u);
  // Of a and b, each for one channel's sum.
  const Tensor da = scale(g.over_groups(ru), -g.share());
  const Tensor db = scale(g.over_groups(multiply(ru, g.normal)), -g.share());
  const Tensor terms = multiply(g.whole(dy), gamma);
  Tensors out(7);
  pull(g, negative(multiply(ru, b)), call, &out[0], &out[2], &out[3]);
  const Tensor inside = subtract(subtract(terms, a), multiply(g.normal, b));
  out[3] = add(out[3], reshape(g.over_groups(multiply(u, inside)), out[3].shape().dims()));
  const Tensor dgamma = add(reduce_sum(multiply(ru, g.whole(dy)), {1}, true),
                            add(multiply(da, of_dy), multiply(db, of_normal)));
  out[1] = reshape(reduce_sum(dgamma, {0, 1}), call.in[1].shape().dims());
  out[4] = like(multiply(ru, gamma), dy);
  out[5] = reshape(multiply(db, gamma), call.in[5].shape().dims());
  out[6] = reshape(multiply(da, gamma), call.in[6].shape().dims());
  return out;
}

// gamma and beta belong to all samples.
Rows rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b001 ? Rows::maps : Rows::mixes;
}
Rows sums_rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b1111 ? Rows::maps : Rows::mixes;
}
Rows gradient_rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b1111101 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 6); }
Cost sums_cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = 4 * static_cast<double>(in[0].elements());
  return result;
}

struct Size {
  const char* name;
  Shape x;
  Dim groups;
  bool benchmark = false;
};
std::vector<Size> sizes() {
  return {{"matrix", {3, 12}, 4},
          {"images", {2, 3, 4, 6}, 2},
          {"each_channel", {2, 5, 3}, 3},
          {"one_group", {3, 2, 7}, 1},
          {"no_samples", {0, 4, 2}, 2},
          {"few_channels", {2, 16, 8, 8}, 2},
          {"many_positions", {1, 37, 31, 20}, 5},
          {"wide", {2, 19, 1030}, 10},
          {"images_b8", {8, 32, 32, 64}, 8, true}};
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const Meta x{Dtype::float32, size.x};
    out.push_back({size.name,
                   {{x}, {parameter_of(x)}, {parameter_of(x)}},
                   {{"groups", size.groups}, {"epsilon", 1e-3}},
                   1e-6,
                   size.benchmark});
  }
  return out;
}
std::vector<Sample> sums_samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const Meta x{Dtype::float32, size.x}, moment = moment_of(x, size.groups);
    out.push_back(
        {size.name, {{x}, {moment}, {moment, Fill::positive}, {x}}, {}, 2e-6, size.benchmark});
  }
  return out;
}
std::vector<Sample> gradient_samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const Meta x{Dtype::float32, size.x}, moment = moment_of(x, size.groups);
    out.push_back({size.name,
                   {{x},
                    {parameter_of(x)},
                    {moment},
                    {moment, Fill::positive},
                    {x},
                    {sum_of(x)},
                    {sum_of(x)}},
                   {},
                   2e-6,
                   size.benchmark});
  }
  return out;
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::group_norm_simd},
    {"reference", DeviceKind::cpu, cpu::group_norm_reference},
};
constexpr Variant kSumsVariants[] = {
    {"simd", DeviceKind::cpu, cpu::group_norm_sums_simd},
    {"reference", DeviceKind::cpu, cpu::group_norm_sums_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::group_norm_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::group_norm_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{4, 0}, {0, 0}};

}  // namespace
}  // namespace group_norm_op

const Op kGroupNorm{
    .name = "group_norm",
    .summary = "mean 0 and variance 1 of groups of channels, then gamma and beta",
    .infer = group_norm_op::infer,
    .gradient = group_norm_op::gradient,
    .in_place = group_norm_op::kInPlace,
    .rows = group_norm_op::rows,
    .wide_operands = group_norm_op::wide_operands,
    .variants = group_norm_op::kVariants,
    .cost = group_norm_op::cost,
    .samples = group_norm_op::samples,
};

const Op kGroupNormSums{
    .name = "group_norm_sums",
    .summary = "sums over positions that the gradients of group_norm share",
    .infer = group_norm_op::sums_infer,
    .gradient = group_norm_op::sums_gradient,
    .rows = group_norm_op::sums_rows,
    .wide_operands = group_norm_op::sums_wide_operands,
    .variants = group_norm_op::kSumsVariants,
    .cost = group_norm_op::sums_cost,
    .samples = group_norm_op::sums_samples,
};

const Op kGroupNormGradient{
    .name = "group_norm_gradient",
    .summary = "gradient of group_norm for its input",
    .infer = group_norm_op::gradient_infer,
    .gradient = group_norm_op::gradient_gradient,
    .in_place = group_norm_op::kGradientInPlace,
    .rows = group_norm_op::gradient_rows,
    .wide_operands = group_norm_op::gradient_wide_operands,
    .variants = group_norm_op::kGradientVariants,
    .cost = group_norm_op::cost,
    .samples = group_norm_op::gradient_samples,
};

GroupNormForm group_norm_form(const Meta& x, Dim groups) {
  const Dim channels = x.shape.back();
  Dim positions = 1;
  for (int d = 1; d + 1 < x.shape.rank(); ++d) positions *= x.shape[d];
  return {x.shape[0], positions, channels, groups, channels / groups};
}

GroupNormResult group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, int64_t groups,
                           double epsilon) {
  Tensors out = apply(kGroupNorm, {x, gamma, beta}, {{"groups", groups}, {"epsilon", epsilon}});
  return {out[0], out[1], out[2]};
}

GroupNormSums group_norm_sums(const Tensor& x, const Tensor& mean, const Tensor& rstd,
                              const Tensor& dy) {
  Tensors out = apply(kGroupNormSums, {x, mean, rstd, dy});
  return {out[0], out[1]};
}

Tensor group_norm_gradient(const Tensor& x, const Tensor& gamma, const Tensor& mean,
                           const Tensor& rstd, const Tensor& dy, const GroupNormSums& sums) {
  return apply(kGroupNormGradient, {x, gamma, mean, rstd, dy, sums.of_normal, sums.of_dy})[0];
}

}  // namespace pl
