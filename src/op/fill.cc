#include "op/fill.h"

#include "op/infer.h"

namespace pl {
namespace fill_op {
namespace {

// No inputs. Attributes: shape, value, dtype; exact, the value of an int64 that no float64 is;
// rows, 1 when shape[0] counts the batch's samples.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("fill", 0, 0, in, attrs);
  const Dtype dtype = dtype_attr("fill", attrs);
  if (!is_number(dtype) && dtype != Dtype::uint8 && dtype != Dtype::boolean)
    reject("fill", "a dtype among float32, float64, int32, int64, uint8 and bool", in, attrs);
  return checked("fill", {{dtype, Shape(attrs.list("shape"))}});
}

Rows rows(const Attrs& attrs, RowMask) {
  return attrs.integer("rows", 0) ? Rows::maps : Rows::none;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, std::vector<int64_t> shape, double value, const char* dtype) {
    return Sample{name,
                  {},
                  {{"shape", std::move(shape)}, {"value", value}, {"dtype", std::string(dtype)}},
                  1e-7};
  };
  return {sample("ones", {3, 5}, 1, "float32"),     sample("third", {7}, 1.0 / 3, "float32"),
          sample("scalar", {}, -2.5, "float32"),    sample("integers", {4}, -3, "int32"),
          sample("long_integers", {2}, 5, "int64"), sample("bytes", {3}, 200, "uint8"),
          sample("bools", {2, 2}, 1, "bool"),       sample("empty", {0, 3}, 1, "float32")};
}

constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::fill_reference},
};

}  // namespace
}  // namespace fill_op

const Op kFill{
    .name = "fill",
    .summary = "one number everywhere",
    .infer = fill_op::infer,
    .rows = fill_op::rows,
    .variants = fill_op::kVariants,
    .cost = fill_op::cost,
    .samples = fill_op::samples,
};

Tensor fill(const Shape& shape, Number value, Dtype dtype, bool rows) {
  if (value.whole && dtype == Dtype::int32) value = value.as<int32_t>();
  if (value.whole && dtype == Dtype::uint8) value = value.as<uint8_t>();
  Attrs attrs{
      {"shape", shape.dims()}, {"value", value.value}, {"dtype", std::string(name_of(dtype))}};
  if (dtype == Dtype::int64 && value.whole && saturated<int64_t>(value.value) != value.exact)
    attrs.set("exact", value.exact);
  if (rows) attrs.set("rows", int64_t{1});
  return apply(kFill, {}, std::move(attrs))[0];
}

}  // namespace pl
