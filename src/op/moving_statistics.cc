#include "op/moving_statistics.h"

#include "op/infer.h"

namespace pl {
namespace moving_statistics_op {
namespace {

// Inputs: moving mean, moving variance, mean, variance. Outputs: the next versions of the first
// two.
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "moving_statistics";
  expect_operands(op, 4, 4, in, attrs);
  for (const Meta& meta : in)
    if (!is_real(in[0].dtype) || meta != in[0])
      reject(op, "two moving and two batch statistics of one shape, float32 or float64", in, attrs);
  const double momentum = attrs.real("momentum", -1);
  if (!(momentum >= 0 && momentum <= 1)) reject(op, "a momentum from 0 to 1", in, attrs);
  return checked(op, {in[0], in[1]});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 3); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, double momentum) {
    return Sample{name,
                  std::vector<SampleInput>(4, {{Dtype::float32, shape}}),
                  {{"momentum", momentum}},
                  1e-6};
  };
  return {sample("one", {1}, 0.99), sample("odd", {37}, 0.9), sample("none", {0}, 0.5),
          sample("many", {4096}, 0.99)};
}

constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::moving_statistics_reference},
};
constexpr InOut kNextVersion[] = {{0, 0}, {1, 1}};

}  // namespace
}  // namespace moving_statistics_op

const Op kMovingStatistics{
    .name = "moving_statistics",
    .summary = "moving averages of a batch's mean and variance",
    .infer = moving_statistics_op::infer,
    .next_version = moving_statistics_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = moving_statistics_op::kVariants,
    .cost = moving_statistics_op::cost,
    .samples = moving_statistics_op::samples,
};

MovingStatistics moving_statistics(const Tensor& moving_mean, const Tensor& moving_variance,
                                   const Tensor& mean, const Tensor& variance, double momentum) {
  const Tensors out = apply(kMovingStatistics, {moving_mean, moving_variance, mean, variance},
                            {{"momentum", momentum}});
  return {out[0], out[1]};
}

}  // namespace pl
