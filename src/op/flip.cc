#include "op/flip.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace flip_op {
namespace {

// Input: x. Attribute: axes, sorted, from 0.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("flip", 1, 1, in, attrs);
  int64_t before = -1;
  for (int64_t axis : attrs.list("axes")) {
    if (axis <= before || axis >= in[0].shape.rank())
      reject("flip", "axes of x, each once", in, attrs);
    before = axis;
  }
  return checked("flip", {in[0]});
}

Tensors gradient(const GradientCall& call) { return {flip(call.dout[0], call.attrs.list("axes"))}; }

Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const auto& axes = attrs.list("axes");
  return !axes.empty() && axes[0] == 0 ? Rows::mixes : Rows::maps;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, std::vector<int64_t> axes) {
    return Sample{name, {{{Dtype::float32, shape}}}, {{"axes", std::move(axes)}}, 1e-7};
  };
  return {sample("rows", {5, 3}, {0}),         sample("columns", {3, 7}, {1}),
          sample("images", {2, 4, 5, 3}, {2}), sample("both", {2, 4, 5, 3}, {1, 2}),
          sample("all", {3, 2, 4}, {0, 1, 2}), sample("none", {3, 2}, {}),
          sample("empty", {0, 3}, {0}),        sample("scalar", {}, {})};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::flip_reference}};

}  // namespace
}  // namespace flip_op

const Op kFlip{
    .name = "flip",
    .summary = "axes in the opposite order",
    .infer = flip_op::infer,
    .gradient = flip_op::gradient,
    .rows = flip_op::rows,
    .variants = flip_op::kVariants,
    .cost = flip_op::cost,
    .samples = flip_op::samples,
};

Tensor flip(const Tensor& x, std::vector<int64_t> axes) {
  for (int64_t& axis : axes)
    if (axis < 0 && x.defined()) axis += x.shape().rank();
  std::sort(axes.begin(), axes.end());
  return apply(kFlip, {x}, {{"axes", std::move(axes)}})[0];
}

}  // namespace pl
