#include "op/pad.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace pad_op {
namespace {

constexpr Dim kLargest = Dim{1} << 30;

// Attribute pads [top, bottom, left, right]. `sign` is 1 for pad, -1 for crop.
Metas resized(const char* op, Dim sign, const Metas& in, const Attrs& attrs) {
  expect_one_real(op, in, attrs);
  const Shape& x = in[0].shape;
  if (x.rank() != 4) reject(op, "images (B, H, W, C)", in, attrs);
  checked(op, in);
  const std::vector<int64_t>& pads = attrs.list("pads");
  if (pads.size() != 4 || *std::min_element(pads.begin(), pads.end()) < 0 ||
      *std::max_element(pads.begin(), pads.end()) > kLargest)
    reject(op, "pads of four integers from 0 to 2^30", in, attrs);
  Meta out = in[0];
  for (int axis : {1, 2}) {
    const auto first = static_cast<size_t>(2 * axis - 2);
    out.shape[axis] += sign * (pads[first] + pads[first + 1]);
    if (out.shape[axis] < 0) reject(op, "images at least as large as the pads", in, attrs);
  }
  return checked(op, {out});
}

Metas infer(const Metas& in, const Attrs& attrs) { return resized("pad", 1, in, attrs); }
Metas crop_infer(const Metas& in, const Attrs& attrs) { return resized("crop", -1, in, attrs); }

Tensors gradient(const GradientCall& call) { return {apply(kCrop, {call.dout[0]}, call.attrs)[0]}; }
Tensors crop_gradient(const GradientCall& call) {
  return {apply(kPad, {call.dout[0]}, call.attrs)[0]};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }
Cost crop_cost(const Metas&, const Metas& out, const Attrs&) {
  return {0, 2 * static_cast<double>(out[0].bytes())};
}

std::vector<Sample> samples_of(bool padded) {
  auto sample = [&](const char* name, Shape x, const Pads& pads, bool benchmark = false) {
    if (padded) {
      x[1] += pads[0] + pads[1];
      x[2] += pads[2] + pads[3];
    }
    return Sample{name,
                  {{{Dtype::float32, x}}},
                  {{"pads", std::vector<int64_t>(pads.begin(), pads.end())}},
                  0,
                  benchmark};
  };
  return {sample("one", {2, 3, 4, 5}, {1, 1, 1, 1}),
          sample("uneven", {2, 3, 2, 3}, {0, 2, 3, 1}),
          sample("columns", {3, 2, 2, 1}, {0, 0, 1, 0}),
          sample("nothing", {1, 2, 2, 2}, {0, 0, 0, 0}),
          sample("no_rows", {2, 0, 2, 2}, {1, 0, 0, 1}),
          sample("no_images", {0, 3, 2, 2}, {1, 1, 1, 1}),
          sample("resnet_stem_b32", {32, 32, 32, 64}, {1, 1, 1, 1}, true)};
}
std::vector<Sample> samples() { return samples_of(false); }
std::vector<Sample> crop_samples() { return samples_of(true); }

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::pad_reference}};
constexpr Variant kCropVariants[] = {{"reference", DeviceKind::cpu, cpu::crop_reference}};

Attrs attrs_of(const Pads& pads) {
  return {{"pads", std::vector<int64_t>(pads.begin(), pads.end())}};
}

}  // namespace
}  // namespace pad_op

const Op kPad{
    .name = "pad",
    .summary = "zeros around the rows and columns of images",
    .infer = pad_op::infer,
    .gradient = pad_op::gradient,
    .rows = rows_map,
    .variants = pad_op::kVariants,
    .cost = pad_op::cost,
    .samples = pad_op::samples,
};

const Op kCrop{
    .name = "crop",
    .summary = "images without some of their outer rows and columns",
    .infer = pad_op::crop_infer,
    .gradient = pad_op::crop_gradient,
    .rows = rows_map,
    .variants = pad_op::kCropVariants,
    .cost = pad_op::crop_cost,
    .samples = pad_op::crop_samples,
};

Tensor pad(const Tensor& x, const Pads& pads) {
  return apply(kPad, {x}, pad_op::attrs_of(pads))[0];
}
Tensor crop(const Tensor& x, const Pads& pads) {
  return apply(kCrop, {x}, pad_op::attrs_of(pads))[0];
}

}  // namespace pl
