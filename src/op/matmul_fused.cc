#include "op/matmul_fused.h"

#include "op/infer.h"

namespace pl {
namespace matmul_fused_op {
namespace {

// Inputs: a, b, c, and of matmul_add a bias. Attributes of matmul, but for its activation.
Metas infer_as(const char* op, size_t most, const Metas& in, const Attrs& attrs) {
  expect_operands(op, 3, most, in, attrs);
  if (attrs.has("activation") || attrs.integer("transpose_a", 0) || attrs.has("dtype"))
    reject(op, "rows times a matrix, without an activation", in, attrs);
  if (!is_real(in[0].dtype)) reject(op, "floating operands", in, attrs);
  Metas plain{in[0], in[1]};
  if (in.size() > 3) plain.push_back(in[3]);
  Metas out = kMatmul.infer(plain, attrs);
  if (in[2] != out[0]) reject(op, "a third operand that looks like the product", in, attrs);
  return out;
}
Metas add_infer(const Metas& in, const Attrs& attrs) {
  return infer_as("matmul_add", 4, in, attrs);
}
Metas gelu_infer(const Metas& in, const Attrs& attrs) {
  return infer_as("matmul_gelu_gradient", 3, in, attrs);
}

// Rows of a and c; the others belong to all samples.
Rows rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b101 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost result = kMatmul.cost({in[0], in[1]}, out, attrs);
  result.bytes += static_cast<double>(in[2].bytes());
  return result;
}

// Matmul's plain ones, with a third operand.
std::vector<Sample> samples_of(bool with_bias) {
  std::vector<Sample> list;
  for (Sample& sample : kMatmul.samples()) {
    const bool bias = sample.in.size() > 2;
    if (sample.benchmark || (bias && !with_bias) || sample.attrs.has("activation") ||
        sample.attrs.integer("transpose_a", 0) || !is_floating(sample.in[0].meta.dtype))
      continue;
    Metas in;
    for (const SampleInput& input : sample.in) in.push_back(input.meta);
    const Metas out = kMatmul.infer(in, sample.attrs);
    sample.in.insert(sample.in.begin() + 2, {out[0]});
    list.push_back(std::move(sample));
  }
  const Meta a{Dtype::float32, Shape{48, 64}}, b{Dtype::float32, Shape{32, 64}};
  list.push_back(
      {"aligned", {{a}, {b}, {{Dtype::float32, Shape{48, 32}}}}, {{"transpose_b", int64_t{1}}}});
  return list;
}
std::vector<Sample> add_samples() { return samples_of(true); }
std::vector<Sample> gelu_samples() { return samples_of(false); }

constexpr Variant kAddVariants[] = {{"composed", DeviceKind::cpu, cpu::matmul_add_composed}};
constexpr Variant kGeluVariants[] = {
    {"composed", DeviceKind::cpu, cpu::matmul_gelu_gradient_composed}};

}  // namespace
}  // namespace matmul_fused_op

const Op kMatmulAdd{
    .name = "matmul_add",
    .summary = "matrix product, to which a matrix and perhaps a bias are added",
    .infer = matmul_fused_op::add_infer,
    .rows = matmul_fused_op::rows,
    .variants = matmul_fused_op::kAddVariants,
    .cost = matmul_fused_op::cost,
    .samples = matmul_fused_op::add_samples,
};

const Op kMatmulGeluGradient{
    .name = "matmul_gelu_gradient",
    .summary = "matrix product times gelu's slope (by tanh) at another matrix",
    .infer = matmul_fused_op::gelu_infer,
    .rows = matmul_fused_op::rows,
    .variants = matmul_fused_op::kGeluVariants,
    .cost = matmul_fused_op::cost,
    .samples = matmul_fused_op::gelu_samples,
};

Tensor matmul_add(const Tensor& a, const Tensor& b, const Tensor& c, MatmulOptions options,
                  const Tensor& bias) {
  Tensors in{a, b, c};
  if (bias.defined()) in.push_back(bias);
  return apply(kMatmulAdd, std::move(in), matmul_attrs(options, a.dtype()))[0];
}
Tensor matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& x,
                            MatmulOptions options) {
  return apply(kMatmulGeluGradient, {a, b, x}, matmul_attrs(options, a.dtype()))[0];
}

}  // namespace pl
