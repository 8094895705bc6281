#include "op/scale.h"

#include "op/infer.h"

namespace pl {
namespace scale_op {
namespace {

// Input: x. Attributes: factor, offset (0 when absent).
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("scale", in, attrs);
  return checked("scale", {in[0]});
}

Tensors gradient(const GradientCall& call) {
  return {scale(call.dout[0], call.attrs.real("factor"))};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 2); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, double factor, double offset,
                   bool benchmark = false) {
    return Sample{name,
                  {{{Dtype::float32, shape}}},
                  {{"factor", factor}, {"offset", offset}},
                  1e-6,
                  benchmark};
  };
  return {sample("pixels", {3, 5}, 1.0 / 255, 0), sample("shifted", {17}, -1.5, 1),
          sample("scalar", {}, 2, 0), sample("empty", {0, 7}, 2, 1),
          sample("large", {256, 4096}, 0.5, 0, true)};
}

constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::scale_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};

}  // namespace
}  // namespace scale_op

const Op kScale{
    .name = "scale",
    .summary = "x * factor + offset, with constant numbers",
    .infer = scale_op::infer,
    .gradient = scale_op::gradient,
    .in_place = scale_op::kInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = scale_op::kVariants,
    .cost = scale_op::cost,
    .samples = scale_op::samples,
};

Tensor scale(const Tensor& x, double factor, double offset) {
  Attrs attrs{{"factor", factor}};
  if (offset != 0) attrs.set("offset", offset);
  return apply(kScale, {x}, std::move(attrs))[0];
}

}  // namespace pl
