#include "op/sgd.h"

#include "op/infer.h"
#include "op/step_params.h"

namespace pl {
namespace sgd_op {
namespace {

// All operands but the last are alike; the last is the step's parameters.
void expect_alike(const char* op, size_t count, const Metas& in, const Attrs& attrs) {
  expect_operands(op, count, count, in, attrs);
  for (size_t i = 0; i + 1 < count; ++i)
    if (!is_real(in[0].dtype) || in[i] != in[0])
      reject(op, "variables and gradient of one shape, float32 or float64", in, attrs);
  if (in.back() != step_params_meta()) reject(op, "step parameters uint8 (64)", in, attrs);
  checked(op, {in[0]});
}

// Inputs: w, g, step_params. Output: w'.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_alike("sgd", 3, in, attrs);
  return {in[0]};
}

// Inputs: w, velocity, g, step_params. Outputs: w', velocity'.
Metas momentum_infer(const Metas& in, const Attrs& attrs) {
  expect_alike("sgd_momentum", 4, in, attrs);
  const double momentum = attrs.real("momentum", 0.9);
  if (!(momentum >= 0 && momentum <= 1))
    reject("sgd_momentum", "a momentum from 0 to 1", in, attrs);
  return {in[0], in[1]};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 2); }

std::vector<Sample> samples_of(size_t variables, bool nesterov) {
  std::vector<Sample> out;
  auto add = [&](const char* name, Shape shape, bool benchmark = false) {
    Sample sample{
        name, std::vector<SampleInput>(variables, {{Dtype::float32, shape}}), {}, 1e-6, benchmark};
    sample.in.push_back({step_params_meta(), Fill::step_params});
    if (nesterov) sample.attrs = {{"momentum", 0.8}, {"nesterov", int64_t{1}}};
    out.push_back(std::move(sample));
  };
  if (nesterov) {
    add("nesterov", {5, 7});
    add("nesterov_many", {33, 1031});
    return out;
  }
  add("scalar", {});
  add("matrix", {5, 7});
  add("empty", {0});
  add("many", {33, 1031});
  add("mlp", {784, 512}, true);
  return out;
}

std::vector<Sample> samples() { return samples_of(2, false); }
std::vector<Sample> momentum_samples() {
  std::vector<Sample> out = samples_of(3, false);
  for (Sample& sample : samples_of(3, true)) out.push_back(std::move(sample));
  return out;
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::sgd_simd},
    {"reference", DeviceKind::cpu, cpu::sgd_reference},
};
constexpr Variant kMomentumVariants[] = {
    {"simd", DeviceKind::cpu, cpu::sgd_momentum_simd},
    {"reference", DeviceKind::cpu, cpu::sgd_momentum_reference},
};
constexpr InOut kNextVersion[] = {{0, 0}};
constexpr InOut kMomentumNextVersion[] = {{0, 0}, {1, 1}};

}  // namespace
}  // namespace sgd_op

const Op kSgd{
    .name = "sgd",
    .summary = "w - learning_rate * g",
    .infer = sgd_op::infer,
    .next_version = sgd_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = sgd_op::kVariants,
    .cost = sgd_op::cost,
    .samples = sgd_op::samples,
};

const Op kSgdMomentum{
    .name = "sgd_momentum",
    .summary = "gradient descent with momentum, or Nesterov's",
    .infer = sgd_op::momentum_infer,
    .next_version = sgd_op::kMomentumNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = sgd_op::kMomentumVariants,
    .cost = sgd_op::cost,
    .samples = sgd_op::momentum_samples,
};

Tensor sgd(const Tensor& w, const Tensor& g, const Tensor& step_params) {
  return apply(kSgd, {w, g, step_params})[0];
}

SgdMomentumResult sgd_momentum(const Tensor& w, const Tensor& velocity, const Tensor& g,
                               const Tensor& step_params, const SgdMomentumOptions& options) {
  Attrs attrs{{"momentum", options.momentum}};
  if (options.nesterov) attrs.set("nesterov", int64_t{1});
  Tensors out = apply(kSgdMomentum, {w, velocity, g, step_params}, std::move(attrs));
  return {out[0], out[1]};
}

}  // namespace pl
