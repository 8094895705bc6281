#include "op/upsample.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace upsample_op {
namespace {

constexpr Dim kLargest = 4096;  // times larger along an axis

// Attributes: size [2], interpolation. The checked size.
const std::vector<int64_t>& size_of_call(const char* op, const Metas& in, const Attrs& attrs) {
  expect_one_real(op, in, attrs);
  if (in[0].shape.rank() != 4) reject(op, "images (B, H, W, C)", in, attrs);
  checked(op, in);
  const std::vector<int64_t>& size = attrs.list("size");
  if (size.size() != 2 || std::min(size[0], size[1]) < 1 || std::max(size[0], size[1]) > kLargest)
    reject(op, "a size of two integers from 1 to 4096", in, attrs);
  const std::string kind = attrs.text("interpolation", "nearest");
  if (kind != "nearest" && kind != "bilinear")
    reject(op, "interpolation 'nearest' or 'bilinear'", in, attrs);
  return size;
}

Metas infer(const Metas& in, const Attrs& attrs) {
  const auto& size = size_of_call("upsample", in, attrs);
  Meta out = in[0];
  for (int axis : {1, 2}) {
    if (out.shape[axis] > (Dim{1} << 40)) reject("upsample", "smaller images", in, attrs);
    out.shape[axis] *= size[static_cast<size_t>(axis - 1)];
  }
  return checked("upsample", {out});
}

Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const auto& size = size_of_call("upsample_gradient", in, attrs);
  Meta out = in[0];
  for (int axis : {1, 2}) {
    const Dim times = size[static_cast<size_t>(axis - 1)];
    if (out.shape[axis] % times != 0)
      reject("upsample_gradient", "rows and columns that are multiples of size", in, attrs);
    out.shape[axis] /= times;
  }
  return checked("upsample_gradient", {out});
}

Tensors gradient(const GradientCall& call) {
  return {apply(kUpsampleGradient, {call.dout[0]}, call.attrs)[0]};
}
Tensors gradient_gradient(const GradientCall& call) {
  return {apply(kUpsample, {call.dout[0]}, call.attrs)[0]};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = static_cast<double>(std::max(in[0].elements(), out[0].elements()));
  return result;
}

std::vector<Sample> samples_of(bool large) {
  auto sample = [&](const char* name, Shape x, std::vector<int64_t> size, const char* kind,
                    bool benchmark = false) {
    if (large) {
      x[1] *= size[0];
      x[2] *= size[1];
    }
    return Sample{name,
                  {{{Dtype::float32, x}}},
                  {{"size", std::move(size)}, {"interpolation", std::string(kind)}},
                  1e-6,
                  benchmark};
  };
  return {sample("nearest", {2, 3, 4, 5}, {2, 2}, "nearest"),
          sample("nearest_3x1", {2, 2, 3, 3}, {3, 1}, "nearest"),
          sample("bilinear", {2, 3, 4, 5}, {2, 2}, "bilinear"),
          sample("bilinear_3x2", {1, 3, 2, 2}, {3, 2}, "bilinear"),
          sample("bilinear_pixel", {2, 1, 1, 2}, {2, 3}, "bilinear"),
          sample("no_images", {0, 3, 2, 2}, {2, 2}, "nearest"),
          sample("unet_b8", {8, 32, 32, 64}, {2, 2}, "nearest", true)};
}
std::vector<Sample> samples() { return samples_of(false); }
std::vector<Sample> gradient_samples() { return samples_of(true); }

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::upsample_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::upsample_gradient_reference}};

Attrs attrs_of(const UpsampleOptions& options) {
  return {{"size", std::vector<int64_t>(options.size.begin(), options.size.end())},
          {"interpolation", options.interpolation}};
}

}  // namespace
}  // namespace upsample_op

const Op kUpsample{
    .name = "upsample",
    .summary = "images a whole number of times larger, nearest or bilinear",
    .infer = upsample_op::infer,
    .gradient = upsample_op::gradient,
    .rows = rows_map,
    .variants = upsample_op::kVariants,
    .cost = upsample_op::cost,
    .samples = upsample_op::samples,
};

const Op kUpsampleGradient{
    .name = "upsample_gradient",
    .summary = "dy summed over the pixels that upsample made of each",
    .infer = upsample_op::gradient_infer,
    .gradient = upsample_op::gradient_gradient,
    .rows = rows_map,
    .variants = upsample_op::kGradientVariants,
    .cost = upsample_op::cost,
    .samples = upsample_op::gradient_samples,
};

Tensor upsample(const Tensor& x, const UpsampleOptions& options) {
  return apply(kUpsample, {x}, upsample_op::attrs_of(options))[0];
}
Tensor upsample_gradient(const Tensor& dy, const UpsampleOptions& options) {
  return apply(kUpsampleGradient, {dy}, upsample_op::attrs_of(options))[0];
}

}  // namespace pl
