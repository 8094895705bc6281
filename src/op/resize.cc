#include "op/resize.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace resize_op {
namespace {

constexpr Dim kLargest = Dim{1} << 24;  // pixels along an axis

// Attributes: size [2], of the result; interpolation; antialias.
Metas infer_as(const char* op, const Metas& in, const Attrs& attrs) {
  expect_one_real(op, in, attrs);
  if (in[0].shape.rank() != 4) reject(op, "images (B, H, W, C)", in, attrs);
  checked(op, in);
  const std::vector<int64_t>& size = attrs.list("size");
  Meta out = in[0];
  for (size_t axis : {0u, 1u}) {
    const Dim from = in[0].shape[static_cast<int>(axis) + 1];
    if (size.size() != 2 || size[axis] < 1 || size[axis] > kLargest || from < 1 || from > kLargest)
      reject(op, "images and a size of at least one pixel", in, attrs);
    out.shape[static_cast<int>(axis) + 1] = size[axis];
  }
  if (resize_reach(attrs.text("interpolation", "bilinear")) < 0)
    reject(op, "interpolation 'nearest', 'bilinear', 'bicubic', 'lanczos3' or 'lanczos5'", in,
           attrs);
  return checked(op, {out});
}
Metas infer(const Metas& in, const Attrs& attrs) { return infer_as("resize", in, attrs); }
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  return infer_as("resize_gradient", in, attrs);
}

// Linear: the gradient of one is the other, with the size of what came in.
Attrs back(const GradientCall& call) {
  const Shape& x = call.in[0].shape();
  Attrs attrs = call.attrs;
  attrs.set("size", std::vector<int64_t>{x[1], x[2]});
  return attrs;
}
Tensors gradient(const GradientCall& call) {
  return {apply(kResizeGradient, {call.dout[0]}, back(call))[0]};
}
Tensors gradient_gradient(const GradientCall& call) {
  return {apply(kResize, {call.dout[0]}, back(call))[0]};
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = pointwise_cost(in, out, 0);
  const double across = 2 * resize_reach(attrs.text("interpolation", "bilinear"));
  result.flops = std::max(across * across, 1.0) *
                 static_cast<double>(std::max(in[0].elements(), out[0].elements()));
  return result;
}

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape x, std::vector<int64_t> size, const char* kind,
                   bool benchmark = false) {
    return Sample{name,
                  {{{Dtype::float32, x}}},
                  {{"size", std::move(size)}, {"interpolation", std::string(kind)}},
                  1e-6,
                  benchmark};
  };
  auto filtered = [&](const char* name, Shape x, std::vector<int64_t> size, const char* kind) {
    Sample made = sample(name, std::move(x), std::move(size), kind);
    made.attrs.set("antialias", int64_t{1});
    return made;
  };
  return {sample("larger", {2, 3, 4, 5}, {5, 7}, "bilinear"),
          sample("smaller", {2, 7, 5, 3}, {3, 2}, "bilinear"),
          sample("mixed", {1, 7, 3, 2}, {4, 5}, "bilinear"),
          sample("nearest_larger", {2, 3, 4, 5}, {5, 7}, "nearest"),
          sample("nearest_smaller", {2, 7, 5, 3}, {3, 2}, "nearest"),
          sample("pixel", {2, 1, 1, 2}, {2, 3}, "bilinear"),
          sample("no_images", {0, 3, 2, 2}, {2, 5}, "nearest"),
          sample("bicubic_larger", {2, 3, 4, 5}, {5, 9}, "bicubic"),
          sample("bicubic_smaller", {2, 9, 7, 3}, {4, 3}, "bicubic"),
          sample("lanczos3", {1, 6, 5, 2}, {9, 4}, "lanczos3"),
          sample("lanczos5_pixel", {1, 1, 3, 2}, {3, 7}, "lanczos5"),
          filtered("bilinear_filtered", {2, 9, 5, 2}, {4, 7}, "bilinear"),
          filtered("bicubic_filtered", {2, 11, 7, 3}, {3, 5}, "bicubic"),
          filtered("lanczos5_filtered", {1, 13, 6, 2}, {4, 3}, "lanczos5"),
          sample("photo_bicubic", {8, 256, 256, 3}, {224, 224}, "bicubic", true),
          sample("photo", {8, 256, 256, 3}, {224, 224}, "bilinear", true)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::resize_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::resize_gradient_reference}};

Attrs attrs_of(std::array<Dim, 2> size, const std::string& interpolation, bool antialias) {
  Attrs attrs{{"size", std::vector<int64_t>(size.begin(), size.end())},
              {"interpolation", interpolation}};
  if (antialias) attrs.set("antialias", int64_t{1});
  return attrs;
}

}  // namespace
}  // namespace resize_op

int resize_reach(std::string_view interpolation) {
  if (interpolation == "nearest") return 0;
  if (interpolation == "bilinear") return 1;
  if (interpolation == "bicubic") return 2;
  if (interpolation == "lanczos3") return 3;
  return interpolation == "lanczos5" ? 5 : -1;
}

const Op kResize{
    .name = "resize",
    .summary = "images of another size, by nearest pixels, bilinear, bicubic or lanczos",
    .infer = resize_op::infer,
    .gradient = resize_op::gradient,
    .rows = rows_map,
    .variants = resize_op::kVariants,
    .cost = resize_op::cost,
    .samples = resize_op::samples,
};

const Op kResizeGradient{
    .name = "resize_gradient",
    .summary = "dy summed over the pixels that resize made of each",
    .infer = resize_op::gradient_infer,
    .gradient = resize_op::gradient_gradient,
    .rows = rows_map,
    .variants = resize_op::kGradientVariants,
    .cost = resize_op::cost,
    .samples = resize_op::samples,
};

Tensor resize(const Tensor& x, std::array<Dim, 2> size, const std::string& interpolation,
              bool antialias) {
  return apply(kResize, {x}, resize_op::attrs_of(size, interpolation, antialias))[0];
}
Tensor resize_gradient(const Tensor& dy, std::array<Dim, 2> size, const std::string& interpolation,
                       bool antialias) {
  return apply(kResizeGradient, {dy}, resize_op::attrs_of(size, interpolation, antialias))[0];
}

}  // namespace pl
