#include "op/conv2d_pool.h"

#include "op/conv2d_few.h"
#include "op/infer.h"

namespace pl {
namespace conv2d_pool_op {
namespace {

Attrs conv_attrs(const Attrs& attrs) {
  Attrs out;
  for (const auto& [name, value] : attrs.entries())
    if (!name.starts_with("pool_")) out.set(name, value);
  return out;
}

PoolForm pool_form(const char* op, const Conv2dForm& f, const Metas& in, const Attrs& attrs) {
  const Meta image{Dtype::float32, Shape{f.batch, f.window.h.out, f.window.w.out, f.filters}};
  if (!attrs.has("pool_size") || !attrs.has("pool_strides"))
    reject(op, "attributes pool_size and pool_strides", in, attrs);
  const std::vector<int64_t> none(4, 0);
  return max_pool_form({image},
                       {{"pool_size", attrs.list("pool_size")},
                        {"strides", attrs.list("pool_strides")},
                        {"padding", attrs.text("pool_padding", "valid")},
                        {"pads", attrs.has("pool_pads") ? attrs.list("pool_pads") : none}});
}

Shape pooled_shape(const Conv2dPoolForm& f) {
  return {f.pool.batch, f.pool.window.h.out, f.pool.window.w.out, f.pool.channels};
}

void expect_fitting(const char* op, const Conv2dPoolForm& f, const Metas& in, const Attrs& attrs) {
  if (!conv2d_pool_fits(f.conv, f.pool))
    reject(op, "few channels, and pool windows inside the image that share nothing", in, attrs);
}

Metas infer(const Metas& in, const Attrs& attrs) {
  const Shape shape = pooled_shape(conv2d_pool_form(in, attrs));
  return {{in[0].dtype, shape}, {Dtype::uint8, shape}};
}

Metas weight_gradient_infer(const Metas& in, const Attrs& attrs) {
  const Conv2dForm f = conv2d_pool_weight_gradient_form(in, attrs).conv;
  Metas out{{in[0].dtype, Shape{f.window.h.kernel, f.window.w.kernel, f.channels, f.filters}}};
  if (f.bias) out.push_back({in[0].dtype, Shape{f.filters}});
  return out;
}

Rows rows(const Attrs&, RowMask in) {
  return in == 0 ? Rows::none : in == 1 ? Rows::maps : Rows::mixes;
}
Rows weight_gradient_rows(const Attrs&, RowMask in) {
  return in == 0 ? Rows::none : in == 7 ? Rows::sums : Rows::mixes;
}

Cost cost_of(const Conv2dPoolForm& f, const Metas& in, const Metas& out) {
  Cost result = pointwise_cost(in, out, 0);
  const double taps =
      static_cast<double>(f.conv.window.h.kernel * f.conv.window.w.kernel * f.conv.channels);
  const double positions = static_cast<double>(f.pool.window.h.kernel * f.pool.window.w.kernel);
  result.flops = 2 * static_cast<double>(pooled_shape(f).elements()) * positions * taps;
  return result;
}
Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  return cost_of(conv2d_pool_form(in, attrs), in, out);
}
Cost weight_gradient_cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  return cost_of(conv2d_pool_weight_gradient_form(in, attrs), in, out);
}

struct Case {
  const char* name;
  Shape x, w;
  Attrs attrs;
  bool bias = true;
  bool benchmark = false;
};

std::vector<Case> cases() {
  using List = std::vector<int64_t>;
  const auto same = std::string("same"), relu = std::string("relu");
  const List two{2, 2};
  return {
      {"one_channel", {3, 8, 8, 1}, {3, 3, 1, 8}, {{"pool_size", two}, {"pool_strides", two}}},
      {"odd_relu",
       {2, 9, 7, 1},
       {3, 3, 1, 40},
       {{"activation", relu}, {"pool_size", two}, {"pool_strides", two}}},
      {"odd_masked",
       {2, 9, 7, 1},
       {3, 3, 1, 40},
       {{"activation", relu}, {"masked", int64_t{1}}, {"pool_size", two}, {"pool_strides", two}}},
      {"same_colour",
       {2, 6, 8, 3},
       {3, 3, 3, 33},
       {{"padding", same}, {"pool_size", two}, {"pool_strides", two}}},
      {"stride2_pool3x2",
       {2, 16, 13, 2},
       {2, 3, 2, 20},
       {{"strides", two}, {"pool_size", List{3, 2}}, {"pool_strides", List{3, 3}}},
       false},
      {"mnist_cnn_b256",
       {256, 28, 28, 1},
       {3, 3, 1, 32},
       {{"activation", relu}, {"pool_size", two}, {"pool_strides", two}},
       true,
       true},
      {"small_cnn_b32",
       {32, 64, 64, 3},
       {3, 3, 3, 32},
       {{"activation", relu}, {"pool_size", two}, {"pool_strides", two}},
       true,
       true},
  };
}

SampleInput floats(Shape shape) { return {{Dtype::float32, std::move(shape)}}; }

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Case& c : cases()) {
    Sample sample{c.name, {floats(c.x), floats(c.w)}, c.attrs, 1e-5, c.benchmark};
    if (c.bias) sample.in.push_back(floats({c.w.back()}));
    out.push_back(std::move(sample));
  }
  return out;
}

std::vector<Sample> weight_gradient_samples() {
  std::vector<Sample> out;
  for (const Case& c : cases()) {
    const Shape y = infer({{Dtype::float32, c.x}, {Dtype::float32, c.w}}, c.attrs)[0].shape;
    Attrs attrs;
    for (const auto& [name, value] : c.attrs.entries())
      if (name != "activation" && name != "masked") attrs.set(name, value);
    attrs.set("kernel_shape", c.w.dims());
    if (c.bias) attrs.set("with_bias", int64_t{1});
    out.push_back({c.name,
                   {floats(c.x), {{Dtype::uint8, y}, Fill::zeros}, floats(y)},
                   attrs,
                   1e-5,
                   c.benchmark});
  }
  return out;
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::conv2d_pool_simd},
    {"reference", DeviceKind::cpu, cpu::conv2d_pool_reference},
};
constexpr Variant kWeightGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::conv2d_pool_weight_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::conv2d_pool_weight_gradient_reference},
};

}  // namespace
}  // namespace conv2d_pool_op

Attrs conv2d_pool_attrs(const Attrs& conv, const Attrs& pool) {
  Attrs out = conv;
  for (const auto& [name, value] : pool.entries())
    if (name != "input_shape") out.set(name.starts_with("pool_") ? name : "pool_" + name, value);
  return out;
}

bool conv2d_pool_fits(const Conv2dForm& conv, const PoolForm& pool) {
  auto inside = [](const WindowAxis& a) {
    return a.before == 0 && (a.out - 1) * a.stride + a.kernel <= a.in;
  };
  return cpu::few_channels(conv) && pool.disjoint() && inside(pool.window.h) &&
         inside(pool.window.w) && cpu::FewWalk::kStripLines % pool.window.h.stride == 0;
}

Conv2dPoolForm conv2d_pool_form(const Metas& in, const Attrs& attrs) {
  const Conv2dForm conv = conv2d_form(in, conv2d_pool_op::conv_attrs(attrs));
  const Conv2dPoolForm f{conv, conv2d_pool_op::pool_form("conv2d_pool", conv, in, attrs),
                         attrs.integer("masked", 0) != 0};
  conv2d_pool_op::expect_fitting("conv2d_pool", f, in, attrs);
  if (f.masked && !conv.relu) reject("conv2d_pool", "relu with masked", in, attrs);
  return f;
}

Conv2dPoolForm conv2d_pool_weight_gradient_form(const Metas& in, const Attrs& attrs) {
  const char* op = "conv2d_pool_weight_gradient";
  expect_operands(op, 3, 3, in, attrs);
  const Meta w{in[0].dtype, Shape(attrs.list("kernel_shape"))};
  Conv2dForm conv = conv2d_form({in[0], w}, conv2d_pool_op::conv_attrs(attrs));
  conv.bias = attrs.integer("with_bias", 0) != 0;
  const Conv2dPoolForm f{conv, conv2d_pool_op::pool_form(op, conv, in, attrs)};
  conv2d_pool_op::expect_fitting(op, f, in, attrs);
  if (in[1] != Meta{Dtype::uint8, conv2d_pool_op::pooled_shape(f)} ||
      in[2] != Meta{in[0].dtype, conv2d_pool_op::pooled_shape(f)})
    reject(op, "an uint8 index and a dy of shape " + conv2d_pool_op::pooled_shape(f).text(), in,
           attrs);
  return f;
}

const Op kConv2dPool{
    .name = "conv2d_pool",
    .summary = "conv2d over few channels and max_pool, optionally relu, in one pass",
    .infer = conv2d_pool_op::infer,
    .rows = conv2d_pool_op::rows,
    .wide_operands = [](const Attrs&, size_t) -> RowMask { return 0b100; },  // the bias
    .variants = conv2d_pool_op::kVariants,
    .cost = conv2d_pool_op::cost,
    .samples = conv2d_pool_op::samples,
};

const Op kConv2dPoolWeightGradient{
    .name = "conv2d_pool_weight_gradient",
    .summary = "max_pool_gradient and conv2d_weight_gradient over few channels in one pass",
    .infer = conv2d_pool_op::weight_gradient_infer,
    .rows = conv2d_pool_op::weight_gradient_rows,
    .variants = conv2d_pool_op::kWeightGradientVariants,
    .cost = conv2d_pool_op::weight_gradient_cost,
    .samples = conv2d_pool_op::weight_gradient_samples,
};

}  // namespace pl
