#include "op/accumulate.h"

#include "op/infer.h"

namespace pl {
namespace {

// Inputs: sum, term. Output: sum + term, the sum's next version.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("accumulate", 2, 2, in, attrs);
  if (!is_real(in[0].dtype) || in[0] != in[1])
    reject("accumulate", "a sum and a term of one shape, float32 or float64", in, attrs);
  return checked("accumulate", {in[0]});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 1); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape) {
    return Sample{name, {{{Dtype::float32, shape}}, {{Dtype::float32, shape}}}, {}, 1e-7};
  };
  return {sample("scalar", {}), sample("matrix", {5, 7}), sample("empty", {0, 3}),
          sample("many", {33, 1031})};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::accumulate_reference}};
constexpr InOut kNextVersion[] = {{0, 0}};

}  // namespace

const Op kAccumulate{
    .name = "accumulate",
    .summary = "adds a term to a running sum",
    .infer = infer,
    .next_version = kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = kVariants,
    .cost = cost,
    .samples = samples,
};

Tensor accumulate(const Tensor& sum, const Tensor& term) {
  return apply(kAccumulate, {sum, term})[0];
}

}  // namespace pl
