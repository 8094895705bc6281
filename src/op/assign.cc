#include "op/assign.h"

#include "op/infer.h"

namespace pl {
namespace assign_op {
namespace {

// Inputs: variable, value. Output: the value, the variable's next version.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("assign", 2, 2, in, attrs);
  if (in[0] != in[1]) reject("assign", "a variable and a value of one dtype and shape", in, attrs);
  return checked("assign", {in[0]});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, Dtype dtype = Dtype::float32) {
    return Sample{name, {{{dtype, shape}}, {{dtype, shape}}}, {}, 1e-7};
  };
  return {sample("scalar", {}), sample("matrix", {5, 7}), sample("empty", {0, 3}),
          sample("integers", {11}, Dtype::int32), sample("many", {33, 1031})};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::assign_reference}};
constexpr InOut kNextVersion[] = {{0, 0}};

}  // namespace
}  // namespace assign_op

const Op kAssign{
    .name = "assign",
    .summary = "a value as a variable's next version",
    .infer = assign_op::infer,
    .next_version = assign_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = assign_op::kVariants,
    .cost = assign_op::cost,
    .samples = assign_op::samples,
};

Tensor assign(const Tensor& variable, const Tensor& value) {
  return apply(kAssign, {variable, value})[0];
}

}  // namespace pl
