#include "op/layer_norm_gradients.h"

#include "op/infer.h"
#include "op/layer_norm.h"

namespace pl {
namespace {

constexpr const char* kName = "layer_norm_gradients";

// Inputs: x, gamma, mean, rstd, dy, [added]. Outputs: dx, dgamma, dbeta.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands(kName, 5, 6, in, attrs);
  const Metas dx = kLayerNormGradient.infer({in[0], in[1], in[2], in[3], in[4]}, attrs);
  if (in.size() > 5 && in[5] != in[0]) reject(kName, "what is added to look like x", in, attrs);
  const Metas sums = kLayerNormParameterGradient.infer({in[0], in[2], in[3], in[4]}, attrs);
  return {dx[0], sums[0], sums[1]};
}

RowMask wide_operands(const Attrs&, size_t) { return 0b1110; }

// gamma belongs to all samples.
Rows rows(const Attrs&, RowMask in) { return in ? Rows::mixes : Rows::none; }
Rows rows_of(const Attrs&, RowMask in, int out) {
  if (!in) return Rows::none;
  if (in != 0b11101 && in != 0b111101) return Rows::mixes;
  return out == 0 ? Rows::maps : Rows::sums;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 8); }

std::vector<Sample> samples() {
  std::vector<Sample> list = kLayerNormGradient.samples();
  std::erase_if(list, [](const Sample& sample) { return sample.benchmark; });
  const size_t count = list.size();
  for (size_t i = 0; i < count; ++i) {
    Sample sample = list[i];
    sample.name += "_added";
    sample.in.push_back({sample.in[0].meta});
    list.push_back(std::move(sample));
  }
  for (Dim width : {768, 1600}) {
    const Meta x{Dtype::float32, Shape{37, width}}, moment{Dtype::float32, Shape{37}};
    list.push_back(
        {"width_" + std::to_string(width),
         {{x}, {{Dtype::float32, Shape{width}}}, {moment}, {moment, Fill::positive}, {x}, {x}},
         {},
         2e-6});
  }
  return list;
}

constexpr Variant kVariants[] = {
    {"composed", DeviceKind::cpu, cpu::layer_norm_gradients_composed},
};
constexpr InOut kInPlace[] = {{4, 0}, {5, 0}, {0, 0}};

}  // namespace

const Op kLayerNormGradients{
    .name = kName,
    .summary = "all gradients of layer_norm, and what else reaches its input",
    .infer = infer,
    .in_place = kInPlace,
    .rows = rows,
    .rows_of = rows_of,
    .wide_operands = wide_operands,
    .variants = kVariants,
    .cost = cost,
    .samples = samples,
};

LayerNormGradients layer_norm_gradients(const Tensor& x, const Tensor& gamma, const Tensor& mean,
                                        const Tensor& rstd, const Tensor& dy, const Tensor& added) {
  Tensors in{x, gamma, mean, rstd, dy};
  if (added.defined()) in.push_back(added);
  const Tensors out = apply(kLayerNormGradients, std::move(in));
  return {out[0], out[1], out[2]};
}

}  // namespace pl
