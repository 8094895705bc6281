#include "op/cast.h"

#include "op/infer.h"

namespace pl {
namespace cast_op {
namespace {

bool castable(Dtype dtype) {
  return is_number(dtype) || dtype == Dtype::uint8 || dtype == Dtype::boolean;
}

// Input: x. Attribute: dtype.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("cast", 1, 1, in, attrs);
  const Dtype to = dtype_attr("cast", attrs);
  if (!castable(in[0].dtype) || !castable(to))
    reject("cast", "dtypes among floats, int32, int64, uint8 and bool", in, attrs);
  return checked("cast", {{to, in[0].shape}});
}

// Integers and booleans have no slope.
Tensors gradient(const GradientCall& call) {
  const Dtype from = call.in[0].dtype();
  if (!is_floating(from) || !is_floating(call.out[0].dtype())) return Tensors(1);
  return {cast(call.dout[0], from)};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Dtype from, const char* to, Shape shape = {3, 5},
                   bool benchmark = false) {
    const Fill fill = from == Dtype::uint8 ? Fill::bytes : Fill::normal;
    return Sample{name, {{{from, shape}, fill}}, {{"dtype", std::string(to)}}, 1e-7, benchmark};
  };
  return {
      sample("pixels", Dtype::uint8, "float32"),
      sample("integers", Dtype::int32, "float32"),
      sample("long_integers", Dtype::int64, "float32"),
      sample("bools", Dtype::boolean, "float32"),
      sample("to_int32", Dtype::float32, "int32"),
      sample("to_uint8", Dtype::float32, "uint8"),
      sample("to_bool", Dtype::int32, "bool"),
      sample("widen", Dtype::int32, "int64", {7}),
      sample("narrow", Dtype::int64, "int32", {}),
      sample("same_float", Dtype::float32, "float32"),
      sample("empty", Dtype::uint8, "float32", {0, 4}),
      sample("pixels_b128", Dtype::uint8, "float32", {128, 784}, true),
  };
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::cast_simd},
    {"reference", DeviceKind::cpu, cpu::cast_reference},
};

}  // namespace
}  // namespace cast_op

const Op kCast{
    .name = "cast",
    .summary = "the same numbers in another dtype",
    .infer = cast_op::infer,
    .gradient = cast_op::gradient,
    .rows = rows_map,
    .variants = cast_op::kVariants,
    .cost = cast_op::cost,
    .samples = cast_op::samples,
};

Tensor cast(const Tensor& x, Dtype dtype) {
  if (x.defined() && x.dtype() == dtype) return x;
  return apply(kCast, {x}, {{"dtype", std::string(name_of(dtype))}})[0];
}

}  // namespace pl
