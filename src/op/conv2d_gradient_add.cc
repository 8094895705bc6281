#include "op/conv2d_gradient_add.h"

#include "op/infer.h"

namespace pl {
namespace conv2d_gradient_add_op {
namespace {

constexpr const char* kName = "conv2d_input_gradient_add";

// Inputs: w, dy, added. Attributes of conv2d_input_gradient.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands(kName, 3, 3, in, attrs);
  Metas out = kConv2dInputGradient.infer({in[0], in[1]}, attrs);
  if (in[2] != out[0]) reject(kName, "what is added to look like the images", in, attrs);
  return out;
}

Rows rows(const Attrs&, RowMask in) {
  return in == 0 ? Rows::none : in == 0b110 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = kConv2dInputGradient.cost({in[0], in[1]}, out, attrs);
  result.bytes += static_cast<double>(in[2].bytes());
  return result;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (Sample& sample : conv2d_input_gradient_samples()) {
    if (sample.benchmark) continue;
    const Metas out =
        kConv2dInputGradient.infer({sample.in[0].meta, sample.in[1].meta}, sample.attrs);
    sample.in.push_back({out[0]});
    list.push_back(std::move(sample));
  }
  return list;
}

constexpr Variant kVariants[] = {
    {"composed", DeviceKind::cpu, cpu::conv2d_input_gradient_add_composed}};
constexpr InOut kInPlace[] = {{2, 0}};

}  // namespace
}  // namespace conv2d_gradient_add_op

const Op kConv2dInputGradientAdd{
    .name = conv2d_gradient_add_op::kName,
    .summary = "conv2d_input_gradient, added to what else reaches the images",
    .infer = conv2d_gradient_add_op::infer,
    .in_place = conv2d_gradient_add_op::kInPlace,
    .rows = conv2d_gradient_add_op::rows,
    .variants = conv2d_gradient_add_op::kVariants,
    .cost = conv2d_gradient_add_op::cost,
    .samples = conv2d_gradient_add_op::samples,
};

}  // namespace pl
