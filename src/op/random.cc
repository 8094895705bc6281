#include "op/random.h"

#include "op/infer.h"
#include "op/step_params.h"

namespace pl {
namespace random_op {
namespace {

// Input: step_params. Attributes: shape, dtype, stream, distribution, a, b; rows, 1 when dimension
// 0 counts samples.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("random", 1, 1, in, attrs);
  if (in[0] != step_params_meta())
    reject("random", "step parameters " + step_params_meta().text(), in, attrs);
  const std::string distribution = attrs.text("distribution", "normal");
  if (distribution != "normal" && distribution != "uniform")
    reject("random", "distribution 'normal' or 'uniform'", in, attrs);
  const Dtype dtype = dtype_attr("random", attrs);
  if (!is_real(dtype)) reject("random", "dtype float32, float64 or bfloat16", in, attrs);
  for (Dim dim : attrs.list("shape"))
    if (dim < 0) reject("random", "dimensions that are not negative", in, attrs);
  attrs.integer("stream");
  return checked("random", {{dtype, Shape(attrs.list("shape"))}});
}

Tensors gradient(const GradientCall&) { return {Tensor()}; }

Rows rows(const Attrs& attrs, RowMask in) {
  if (in) return Rows::mixes;
  return attrs.integer("rows", 0) ? Rows::maps : Rows::none;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 60); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, std::vector<int64_t> shape, const char* distribution, double a,
                   double b, bool benchmark = false) {
    return Sample{name,
                  {{step_params_meta(), Fill::step_params}},
                  {{"shape", std::move(shape)},
                   {"dtype", std::string("float32")},
                   {"stream", int64_t{0x5eed5eed}},
                   {"distribution", std::string(distribution)},
                   {"a", a},
                   {"b", b},
                   {"rows", int64_t{1}}},
                  1e-6,
                  benchmark};
  };
  return {sample("normal", {5, 13}, "normal", 0, 1),
          sample("shifted", {2, 3, 7}, "normal", 1, 0.5),
          sample("uniform", {4, 9}, "uniform", -2, 3),
          sample("scalar", {}, "uniform", 0, 1),
          sample("empty", {0, 3}, "normal", 0, 1),
          sample("large", {256, 4096}, "normal", 0, 1, true)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::random_reference}};

}  // namespace
}  // namespace random_op

const Op kRandom{
    .name = "random",
    .summary = "normal or uniform numbers, drawn anew in each step",
    .infer = random_op::infer,
    .gradient = random_op::gradient,
    .rows = random_op::rows,
    .effects = {.random = true},
    .variants = random_op::kVariants,
    .cost = random_op::cost,
    .samples = random_op::samples,
};

Tensor draw(const Shape& shape, const Tensor& step_params, int64_t stream,
            const RandomOptions& options, Dtype dtype, bool rows) {
  Attrs attrs{{"shape", shape.dims()}, {"dtype", std::string(name_of(dtype))},
              {"stream", stream},      {"distribution", options.distribution},
              {"a", options.a},        {"b", options.b}};
  if (rows) attrs.set("rows", int64_t{1});
  return apply(kRandom, {step_params}, std::move(attrs))[0];
}

}  // namespace pl
