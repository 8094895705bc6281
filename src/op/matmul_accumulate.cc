#include "op/matmul_accumulate.h"

#include "op/infer.h"

namespace pl {
namespace matmul_accumulate_op {
namespace {

constexpr const char* kName = "matmul_accumulate";

// Inputs: sum, a, b. Attributes of matmul, but for its activation.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands(kName, 3, 3, in, attrs);
  if (attrs.text("activation", "none") != "none")
    reject(kName, "a product without an activation", in, attrs);
  if (!is_real(in[1].dtype)) reject(kName, "floating operands", in, attrs);
  Metas out = kMatmul.infer({in[1], in[2]}, attrs);
  if (in[0] != out[0]) reject(kName, "a sum that looks like the product", in, attrs);
  return out;
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = kMatmul.cost({in[1], in[2]}, out, attrs);
  result.bytes += static_cast<double>(in[0].bytes());
  return result;
}

// Matmul's without a bias or an activation, behind a sum.
std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (Sample& sample : kMatmul.samples()) {
    if (sample.in.size() != 2 || sample.attrs.has("activation") ||
        !is_floating(sample.in[0].meta.dtype))
      continue;
    const Metas out = kMatmul.infer({sample.in[0].meta, sample.in[1].meta}, sample.attrs);
    sample.in.insert(sample.in.begin(), {out[0]});
    list.push_back(std::move(sample));
  }
  return list;
}

constexpr Variant kVariants[] = {
    {"onednn", DeviceKind::cpu, cpu::matmul_accumulate_onednn},
    {"reference", DeviceKind::cpu, cpu::matmul_accumulate_reference},
};
constexpr InOut kNextVersion[] = {{0, 0}};

}  // namespace
}  // namespace matmul_accumulate_op

const Op kMatmulAccumulate{
    .name = matmul_accumulate_op::kName,
    .summary = "adds a matrix product to a running sum",
    .infer = matmul_accumulate_op::infer,
    .next_version = matmul_accumulate_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = matmul_accumulate_op::kVariants,
    .cost = matmul_accumulate_op::cost,
    .samples = matmul_accumulate_op::samples,
};

Tensor matmul_accumulate(const Tensor& sum, const Tensor& a, const Tensor& b,
                         MatmulOptions options) {
  return apply(kMatmulAccumulate, {sum, a, b}, matmul_attrs(options, a.dtype()))[0];
}

}  // namespace pl
