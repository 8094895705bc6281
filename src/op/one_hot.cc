#include "op/one_hot.h"

#include "op/infer.h"

namespace pl {
namespace one_hot_op {
namespace {

// Input: labels int32. Attributes: depth, dtype.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("one_hot", 1, 1, in, attrs);
  if (in[0].dtype != Dtype::int32) reject("one_hot", "int32 labels", in, attrs);
  const Dtype dtype = dtype_attr("one_hot", attrs);
  if (!is_real(dtype)) reject("one_hot", "a result of float32 or float64", in, attrs);
  if (attrs.integer("depth") < 0) reject("one_hot", "a depth that is not negative", in, attrs);
  std::vector<Dim> dims = in[0].shape.dims();
  dims.push_back(attrs.integer("depth"));
  return checked("one_hot", {{dtype, Shape(std::move(dims))}});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, int64_t depth, bool benchmark = false) {
    return Sample{name,
                  {{{Dtype::int32, shape}, Fill::labels}},
                  {{"depth", depth}, {"dtype", std::string("float32")}},
                  0,
                  benchmark};
  };
  return {sample("digits", {7}, 10),      sample("one_class", {3}, 1),
          sample("sequence", {2, 3}, 5),  sample("scalar", {}, 4),
          sample("empty", {0}, 10),       sample("no_depth", {3}, 0),
          sample("b128", {128}, 10, true)};
}

constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::one_hot_reference},
};

}  // namespace
}  // namespace one_hot_op

const Op kOneHot{
    .name = "one_hot",
    .summary = "class numbers to rows with a single 1",
    .infer = one_hot_op::infer,
    .rows = rows_map,
    .variants = one_hot_op::kVariants,
    .cost = one_hot_op::cost,
    .samples = one_hot_op::samples,
};

Tensor one_hot(const Tensor& labels, Dim depth, Dtype dtype) {
  return apply(kOneHot, {labels}, {{"depth", depth}, {"dtype", std::string(name_of(dtype))}})[0];
}

}  // namespace pl
