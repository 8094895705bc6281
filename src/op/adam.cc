#include "op/adam.h"

#include "op/infer.h"
#include "op/step_params.h"

namespace pl {
namespace adam_op {
namespace {

// Inputs: w, m, v, g, step_params. Outputs: w', m', v'.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("adam", 5, 5, in, attrs);
  for (size_t i = 0; i < 4; ++i)
    if (!is_real(in[0].dtype) || in[i] != in[0])
      reject("adam", "variables and gradient of one shape, float32 or float64", in, attrs);
  if (in[4] != step_params_meta()) reject("adam", "step parameters uint8 (64)", in, attrs);
  const AdamUpdateOptions options = adam_options(attrs);
  for (double beta : {options.beta_1, options.beta_2})
    if (!(beta >= 0 && beta < 1)) reject("adam", "beta_1 and beta_2 in [0, 1)", in, attrs);
  if (!(options.epsilon >= 0)) reject("adam", "a non-negative epsilon", in, attrs);
  if (!(options.weight_decay >= 0)) reject("adam", "a non-negative weight_decay", in, attrs);
  return checked("adam", {in[0], in[1], in[2]});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 4); }

std::vector<Sample> samples() {
  std::vector<Sample> out;
  auto add = [&](const char* name, Shape shape, Attrs attrs = {}, bool benchmark = false) {
    const Meta meta{Dtype::float32, std::move(shape)};
    out.push_back(
        {name,
         {{meta}, {meta}, {meta, Fill::positive}, {meta}, {step_params_meta(), Fill::step_params}},
         std::move(attrs),
         1e-5,
         benchmark});
  };
  add("scalar", {});
  add("matrix", {5, 7});
  add("other_betas", {3, 11}, {{"beta_1", 0.5}, {"beta_2", 0.9}, {"epsilon", 1e-3}});
  add("decay", {7, 19}, {{"weight_decay", 0.25}});
  add("empty", {0});
  add("many", {33, 1031});
  add("mlp", {784, 512}, {}, true);
  return out;
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::adam_simd},
    {"reference", DeviceKind::cpu, cpu::adam_reference},
};
constexpr InOut kNextVersion[] = {{0, 0}, {1, 1}, {2, 2}};

}  // namespace
}  // namespace adam_op

AdamUpdateOptions adam_options(const Attrs& attrs) {
  const AdamUpdateOptions defaults;
  return {attrs.real("beta_1", defaults.beta_1), attrs.real("beta_2", defaults.beta_2),
          attrs.real("epsilon", defaults.epsilon),
          attrs.real("weight_decay", defaults.weight_decay)};
}

const Op kAdam{
    .name = "adam",
    .summary = "Adam's update of a variable and its two moments",
    .infer = adam_op::infer,
    .next_version = adam_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = adam_op::kVariants,
    .cost = adam_op::cost,
    .samples = adam_op::samples,
};

AdamResult adam(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                const Tensor& step_params, const AdamUpdateOptions& options) {
  Attrs attrs{{"beta_1", options.beta_1}, {"beta_2", options.beta_2}, {"epsilon", options.epsilon}};
  if (options.weight_decay != 0) attrs.set("weight_decay", options.weight_decay);
  Tensors out = apply(kAdam, {w, m, v, g, step_params}, std::move(attrs));
  return {out[0], out[1], out[2]};
}

}  // namespace pl
