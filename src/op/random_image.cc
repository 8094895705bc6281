#include "op/random_image.h"

#include <algorithm>

#include "op/infer.h"
#include "op/step_params.h"

namespace pl {
namespace random_image_op {
namespace {

bool one_of(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return text == word; });
}

// Inputs: images (B, H, W, C), step_params. Attributes: kind, from and size [2] (before and after),
// stream, low0, high0, low1, high1, joint, fill_mode, fill_value, interpolation. The result has the
// rows and columns of attribute `to`; the operand those of `of`.
Metas infer_as(const char* op, const char* of, const char* to, const Metas& in,
               const Attrs& attrs) {
  expect_operands(op, 2, 2, in, attrs);
  if (!is_real(in[0].dtype) || in[0].shape.rank() != 4)
    reject(op, "images (B, H, W, C) of a floating dtype", in, attrs);
  if (in[1] != step_params_meta())
    reject(op, "step parameters " + step_params_meta().text() + " second", in, attrs);
  const auto &before = attrs.list("from"), &after = attrs.list("size");
  bool sizes = before.size() == 2 && after.size() == 2;
  for (size_t i = 0; sizes && i < 2; ++i) sizes = before[i] > 0 && after[i] > 0;
  if (!sizes) reject(op, "from and size with at least one pixel", in, attrs);
  const std::string& kind = attrs.text("kind");
  if (!one_of(kind, {"flip", "crop", "rotation", "translation", "zoom"}))
    reject(op, "kind flip, crop, rotation, translation or zoom", in, attrs);
  if (kind == "crop" ? after[0] > before[0] || after[1] > before[1] : after != before)
    reject(op, "images at least as large as the result, and as large but of a crop", in, attrs);
  if (!one_of(attrs.text("fill_mode", "reflect"), {"reflect", "constant", "nearest", "wrap"}))
    reject(op, "fill_mode reflect, constant, nearest or wrap", in, attrs);
  if (!one_of(attrs.text("interpolation", "bilinear"), {"nearest", "bilinear"}))
    reject(op, "interpolation nearest or bilinear", in, attrs);
  attrs.integer("stream");
  const auto &mine = attrs.list(of), &theirs = attrs.list(to);
  if (in[0].shape[1] != mine[0] || in[0].shape[2] != mine[1])
    reject(op, "images of the size that the attributes say", in, attrs);
  return checked(op, {{in[0].dtype, Shape{in[0].shape[0], theirs[0], theirs[1], in[0].shape[3]}}});
}
Metas infer(const Metas& in, const Attrs& attrs) {
  return infer_as("random_image", "from", "size", in, attrs);
}
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  return infer_as("random_image_gradient", "size", "from", in, attrs);
}

// Linear in the images, but for what fills them.
Tensors gradient(const GradientCall& call) {
  return {apply(kRandomImageGradient, {call.dout[0], call.in[1]}, call.attrs)[0], Tensor()};
}
Tensors gradient_gradient(const GradientCall& call) {
  Attrs attrs = call.attrs;
  attrs.set("fill_value", 0.0);
  return {apply(kRandomImage, {call.dout[0], call.in[1]}, std::move(attrs))[0], Tensor()};
}

Rows rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 1 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 8); }

std::vector<Sample> samples_of(bool gradient) {
  auto sample = [&](const char* name, const char* kind, Shape x, std::vector<int64_t> size,
                    std::array<double, 4> range, const char* fill = "reflect", double value = 0,
                    const char* interpolation = "bilinear") {
    const std::vector<int64_t> from{x[1], x[2]};
    if (gradient) x = Shape{x[0], size[0], size[1], x[3]};
    return Sample{name,
                  {{{Dtype::float32, x}}, {step_params_meta(), Fill::step_params}},
                  {{"kind", std::string(kind)},
                   {"from", from},
                   {"size", std::move(size)},
                   {"stream", int64_t{0x5eed}},
                   {"low0", range[0]},
                   {"high0", range[1]},
                   {"low1", range[2]},
                   {"high1", range[3]},
                   {"joint", int64_t{range[2] > range[3] ? 1 : 0}},
                   {"fill_mode", std::string(fill)},
                   {"fill_value", value},
                   {"interpolation", std::string(interpolation)}},
                  1e-5};
  };
  return {sample("flip_both", "flip", {7, 3, 4, 2}, {3, 4}, {0, 1, 0, 1}),
          sample("flip_sides", "flip", {5, 3, 4, 1}, {3, 4}, {0, 1, 0, 0}),
          sample("crop", "crop", {3, 6, 7, 2}, {3, 5}, {0, 0, 0, 0}),
          sample("turn", "rotation", {3, 5, 6, 2}, {5, 6}, {-0.3, 0.4, 0, 0}),
          sample("turn_fill", "rotation", {3, 5, 6, 2}, {5, 6}, {-0.5, 0.5, 0, 0}, "constant", 0.5),
          sample("turn_edge", "rotation", {2, 5, 4, 1}, {5, 4}, {0.1, 0.2, 0, 0}, "nearest", 0,
                 "nearest"),
          sample("move", "translation", {3, 5, 6, 1}, {5, 6}, {-0.5, 0.5, -1, 1}, "wrap"),
          sample("zoom", "zoom", {3, 4, 5, 2}, {4, 5}, {-0.5, 0.5, 0.1, 0.4}),
          sample("zoom_joint", "zoom", {3, 4, 5, 2}, {4, 5}, {-0.5, 0.5, 1, 0}, "nearest"),
          sample("none", "flip", {0, 3, 4, 2}, {3, 4}, {0, 1, 0, 1})};
}
std::vector<Sample> samples() { return samples_of(false); }
std::vector<Sample> gradient_samples() { return samples_of(true); }

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::random_image_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::random_image_gradient_reference}};

}  // namespace
}  // namespace random_image_op

const Op kRandomImage{
    .name = "random_image",
    .summary = "images flipped, cropped, turned, moved or zoomed at random",
    .infer = random_image_op::infer,
    .gradient = random_image_op::gradient,
    .rows = random_image_op::rows,
    .effects = {.random = true},
    .variants = random_image_op::kVariants,
    .cost = random_image_op::cost,
    .samples = random_image_op::samples,
};

const Op kRandomImageGradient{
    .name = "random_image_gradient",
    .summary = "pixels sent back where random_image took them from",
    .infer = random_image_op::gradient_infer,
    .gradient = random_image_op::gradient_gradient,
    .rows = random_image_op::rows,
    .effects = {.random = true},
    .variants = random_image_op::kGradientVariants,
    .cost = random_image_op::cost,
    .samples = random_image_op::gradient_samples,
};

Tensor random_image(const Tensor& x, const Tensor& step_params, int64_t stream,
                    const RandomImageOptions& o) {
  if (x.dtype() == Dtype::bfloat16) reject("random_image", "float32 or float64", {x.meta()});
  const Shape& shape = x.shape();
  const std::vector<int64_t> from{shape[1], shape[2]};
  Attrs attrs{{"kind", o.kind},
              {"from", from},
              {"size", o.size[0] == 0 ? from : std::vector<int64_t>{o.size[0], o.size[1]}},
              {"stream", stream},
              {"low0", o.first[0]},
              {"high0", o.first[1]},
              {"low1", o.second[0]},
              {"high1", o.second[1]},
              {"joint", int64_t{o.joint ? 1 : 0}},
              {"fill_mode", o.fill_mode},
              {"fill_value", o.fill_value},
              {"interpolation", o.interpolation}};
  return apply(kRandomImage, {x, step_params}, std::move(attrs))[0];
}

}  // namespace pl
