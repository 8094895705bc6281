#include "op/pointwise.h"

#include "op/broadcast.h"
#include "op/fill.h"
#include "op/infer.h"
#include "op/reduce.h"
#include "op/relu.h"
#include "op/scale.h"

namespace pl {
namespace {

constexpr const char* kBinaryNames[] = {
    "add",        "subtract",     "multiply",           "divide",       "maximum", "minimum",
    "equal_mask", "greater_mask", "greater_equal_mask", "floor_divide", "mod",     "power"};
constexpr const char* kUnaryNames[] = {"negative", "exp",   "log",  "sqrt",     "square", "tanh",
                                       "sigmoid",  "abs",   "sign", "softplus", "expm1",  "sin",
                                       "cos",      "floor", "ceil", "trunc",    "round"};
constexpr const char* name_of(Binary kind) { return kBinaryNames[static_cast<int>(kind)]; }
constexpr const char* name_of(Unary kind) { return kUnaryNames[static_cast<int>(kind)]; }

template <Binary kind>
Metas infer_binary(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = name_of(kind);
  expect_operands(op, 2, 2, in, attrs);
  if (in[0].dtype != in[1].dtype) reject(op, "operands of one dtype", in, attrs);
  if (kind == Binary::divide && !is_real(in[0].dtype)) reject(op, "floating operands", in, attrs);
  if (!is_number(in[0].dtype))
    reject(op, "operands of a floating dtype, int32 or int64", in, attrs);
  Shape shape;
  if (!broadcast_shapes(in[0].shape, in[1].shape, &shape))
    reject(op, "shapes that broadcast", in, attrs);
  return checked(op, {{in[0].dtype, shape}});
}

template <Unary kind>
Metas infer_unary(const Metas& in, const Attrs& attrs) {
  expect_one_real(name_of(kind), in, attrs);
  return checked(name_of(kind), {in[0]});
}

// Attributes that `binary` records: `aligned`, a bit per operand whose dimension 0 is the result's
// (3 when absent); `single`, set when that dimension is 1, so that every operand is whole in one
// row.
Rows rows_binary(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const auto aligned = static_cast<RowMask>(attrs.integer("aligned", 3));
  if (in & ~aligned) return Rows::mixes;  // samples meet another dimension
  // An operand without rows would have to be cut along with the batch.
  if ((aligned & ~in) && !attrs.integer("single", 0)) return Rows::mixes;
  return Rows::maps;
}

Tensor binary(const Op& op, const Tensor& a, const Tensor& b) {
  Attrs attrs;
  Shape out;
  if (a.defined() && b.defined() && broadcast_shapes(a.shape(), b.shape(), &out) &&
      out.rank() > 0) {
    auto aligned = [&](const Shape& shape) {
      return shape.rank() == out.rank() && shape[0] == out[0];
    };
    const int64_t mask = (aligned(a.shape()) ? 1 : 0) + (aligned(b.shape()) ? 2 : 0);
    if (mask != 3) attrs.set("aligned", mask);
    if (out[0] == 1) attrs.set("single", int64_t{1});
  }
  return apply(op, {a, b}, std::move(attrs))[0];
}

// Gradients for the two operands, from functions that give them in the result's shape.
template <class A, class B>
Tensors binary_gradient(const GradientCall& call, A gradient_a, B gradient_b) {
  Tensors out(2);
  if (call.wants(0)) out[0] = sum_to(gradient_a(), call.in[0].shape(), call.dtype_of(0));
  if (call.wants(1)) out[1] = sum_to(gradient_b(), call.in[1].shape(), call.dtype_of(1));
  return out;
}

Tensors gradient_add(const GradientCall& call) {
  const Tensor& dy = call.dout[0];
  return binary_gradient(
      call, [&] { return dy; }, [&] { return dy; });
}
Tensors gradient_subtract(const GradientCall& call) {
  const Tensor& dy = call.dout[0];
  Tensors out(2);
  if (call.wants(0)) out[0] = sum_to(dy, call.in[0].shape());
  if (call.wants(1)) out[1] = negative(sum_to(dy, call.in[1].shape()));  // smaller after the sum
  return out;
}
Tensors gradient_multiply(const GradientCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &dy = call.dout[0];
  return binary_gradient(
      call, [&] { return multiply(dy, b); }, [&] { return multiply(dy, a); });
}
Tensors gradient_divide(const GradientCall& call) {
  const Tensor &b = call.in[1], &y = call.out[0], &dy = call.dout[0];
  return binary_gradient(
      call, [&] { return divide(dy, b); }, [&] { return negative(divide(multiply(dy, y), b)); });
}
// To b where a is not chosen: where one is NaN too. The other gets 0, whatever dy is.
Tensors gradient_choice(const GradientCall& call, const Tensor& a_chosen) {
  const Tensor& dy = call.dout[0];
  return binary_gradient(
      call, [&] { return relu_gradient(a_chosen, dy); },
      [&] { return relu_gradient(scale(a_chosen, -1, 1), dy); });
}
Tensors gradient_maximum(const GradientCall& call) {
  return gradient_choice(call, greater_equal_mask(call.in[0], call.in[1]));
}
Tensors gradient_minimum(const GradientCall& call) {
  return gradient_choice(call, greater_equal_mask(call.in[1], call.in[0]));
}

Tensors gradient_mod(const GradientCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &dy = call.dout[0];
  return binary_gradient(
      call, [&] { return dy; }, [&] { return negative(multiply(dy, floor_divide(a, b))); });
}
// b a^(b - 1), also where b is 0; and a^b log a, but 0 where a is 0 and b is not negative.
Tensors gradient_power(const GradientCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &y = call.out[0], &dy = call.dout[0];
  auto number = [](double value, const Tensor& like) { return fill({}, value, like.dtype()); };
  auto zero = [&](const Tensor& x) { return equal_mask(x, number(0, x)); };
  return binary_gradient(
      call,
      [&] {
        const Tensor less = add(scale(b, 1, -1), zero(b));
        const Tensor slope = multiply(b, power(a, less));
        if (b.dtype() == Dtype::float64) return multiply(dy, slope);
        // Where float32 has no b - 1, b and `less` are even, and the sign of a^(b - 1) that of a.
        const Tensor least = minimum(abs(b), abs(less));
        const Tensor even = multiply(greater_equal_mask(least, number(0x1p24, b)),
                                     greater_mask(number(0x1p53, b), abs(b)));
        const Tensor below = greater_mask(number(0, a), a);
        return multiply(dy, multiply(slope, scale(multiply(even, below), -2, 1)));
      },
      [&] {
        const Tensor flat = multiply(zero(a), greater_equal_mask(b, number(0, b)));
        return multiply(dy, multiply(y, log(add(a, flat))));
      });
}

// Steps: no slope anywhere, so that what is made of them can be differentiated again.
Tensors gradient_none(const GradientCall& call) { return Tensors(call.in.size()); }

// Where the output says as much as the input, the gradient reads the output.
template <Unary kind>
Tensors gradient_unary(const GradientCall& call) {
  const Tensor &x = call.in[0], &y = call.out[0], &dy = call.dout[0];
  if constexpr (kind == Unary::negative) return {negative(dy)};
  if constexpr (kind == Unary::exp) return {multiply(dy, y)};
  if constexpr (kind == Unary::log) return {divide(dy, x)};
  if constexpr (kind == Unary::sqrt) return {scale(divide(dy, y), 0.5)};
  if constexpr (kind == Unary::square) return {scale(multiply(dy, x), 2)};
  if constexpr (kind == Unary::tanh) return {multiply(dy, scale(square(y), -1, 1))};
  if constexpr (kind == Unary::sigmoid) return {multiply(dy, multiply(y, scale(y, -1, 1)))};
  if constexpr (kind == Unary::abs) return {multiply(dy, sign(x))};
  if constexpr (kind == Unary::softplus) return {multiply(dy, sigmoid(x))};
  if constexpr (kind == Unary::expm1) return {multiply(dy, exp(x))};  // y + 1 is 0 far below 0
  if constexpr (kind == Unary::sin) return {multiply(dy, cos(x))};
  if constexpr (kind == Unary::cos) return {negative(multiply(dy, sin(x)))};
}

Cost cost_cheap(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out); }
Cost cost_dear(const Metas& in, const Metas& out, const Attrs&) {
  return pointwise_cost(in, out, 20);
}

template <Binary kind>
std::vector<Sample> samples_binary() {
  constexpr Fill fill = kind == Binary::power ? Fill::positive : Fill::normal;
  auto sample = [](const char* name, Shape a, Shape b, bool benchmark = false) {
    return Sample{name, {{{Dtype::float32, a}, fill}, {{Dtype::float32, b}}}, {}, 1e-6, benchmark};
  };
  std::vector<Sample> samples{
      sample("same", {3, 5}, {3, 5}),
      sample("bias", {5, 3}, {3}),
      sample("column", {3, 4}, {3, 1}),
      sample("outer", {4, 1}, {1, 3}),
      sample("scalar", {}, {2, 3}),
      sample("middle", {2, 1, 3}, {4, 1}),
      sample("empty", {0, 3}, {3}),
      sample("dense_b128", {128, 512}, {512}, true),
      sample("large", {256, 4096}, {256, 4096}, true),
      sample("gpt_residual", {8, 256, 256}, {8, 256, 256}, true),
      sample("gpt_positions", {8, 256, 256}, {256, 256}, true),
  };
  if (kind != Binary::divide)
    samples.push_back({"int32", {{{Dtype::int32, {2, 3}}}, {{Dtype::int32, {3}}}}, {}});
  return samples;
}

template <Unary kind>
std::vector<Sample> samples_unary() {
  constexpr Fill fill = kind == Unary::log || kind == Unary::sqrt ? Fill::positive : Fill::normal;
  auto sample = [](const char* name, Shape shape, bool benchmark = false) {
    return Sample{name, {{{Dtype::float32, shape}, fill}}, {}, 1e-6, benchmark};
  };
  return {sample("scalar", {}), sample("vector", {17}), sample("matrix", {3, 5}),
          sample("empty", {2, 0}), sample("large", {256, 4096}, true)};
}

template <Binary kind>
constexpr Variant kBinaryVariants[] = {
    {"reference", DeviceKind::cpu, cpu::binary_reference<kind>},
};
template <Unary kind>
constexpr Variant kUnaryVariants[] = {
    {"simd", DeviceKind::cpu, cpu::unary_simd<kind>},
    {"reference", DeviceKind::cpu, cpu::unary_reference<kind>},
};
constexpr InOut kBinaryInPlace[] = {{0, 0}, {1, 0}};
constexpr InOut kUnaryInPlace[] = {{0, 0}};

using Gradient = Tensors (*)(const GradientCall&);

constexpr bool is_step(Unary kind) {
  return kind == Unary::sign || kind == Unary::floor || kind == Unary::ceil ||
         kind == Unary::trunc || kind == Unary::round;
}

template <Binary kind>
constexpr Op binary_op(const char* summary, Gradient gradient, bool dear = false) {
  return {.name = name_of(kind),
          .summary = summary,
          .infer = infer_binary<kind>,
          .gradient = gradient,
          .in_place = kBinaryInPlace,
          .rows = rows_binary,
          .additive = kind == Binary::add,
          .cut = Cut::elements,
          .variants = kBinaryVariants<kind>,
          .cost = dear ? cost_dear : cost_cheap,
          .samples = samples_binary<kind>};
}

template <Unary kind>
constexpr Op unary_op(const char* summary, bool dear = false) {
  Gradient gradient = gradient_none;
  if constexpr (!is_step(kind)) gradient = gradient_unary<kind>;
  return {.name = name_of(kind),
          .summary = summary,
          .infer = infer_unary<kind>,
          .gradient = gradient,
          .in_place = kUnaryInPlace,
          .rows = rows_map,
          .cut = Cut::elements,
          .variants = kUnaryVariants<kind>,
          .cost = dear ? cost_dear : cost_cheap,
          .samples = samples_unary<kind>};
}

}  // namespace

constinit const Op kAdd = binary_op<Binary::add>("a + b", gradient_add);
constinit const Op kSubtract = binary_op<Binary::subtract>("a - b", gradient_subtract);
constinit const Op kMultiply = binary_op<Binary::multiply>("a * b", gradient_multiply);
constinit const Op kDivide = binary_op<Binary::divide>("a / b", gradient_divide);
constinit const Op kMaximum =
    binary_op<Binary::maximum>("the larger of a and b; NaN if one is", gradient_maximum);
constinit const Op kMinimum =
    binary_op<Binary::minimum>("the smaller of a and b; NaN if one is", gradient_minimum);
constinit const Op kEqualMask =
    binary_op<Binary::equal_mask>("1 where a == b, else 0", gradient_none);
constinit const Op kGreaterMask =
    binary_op<Binary::greater_mask>("1 where a > b, else 0", gradient_none);
constinit const Op kGreaterEqualMask =
    binary_op<Binary::greater_equal_mask>("1 where a >= b, else 0", gradient_none);

constinit const Op kFloorDivide =
    binary_op<Binary::floor_divide>("a / b, rounded down", gradient_none, true);
constinit const Op kMod = binary_op<Binary::mod>("a - b * floor_divide(a, b)", gradient_mod, true);
constinit const Op kPower = binary_op<Binary::power>("a to the b", gradient_power, true);

constinit const Op kNegative = unary_op<Unary::negative>("-x");
constinit const Op kExp = unary_op<Unary::exp>("e to the x", true);
constinit const Op kLog = unary_op<Unary::log>("natural logarithm", true);
constinit const Op kSqrt = unary_op<Unary::sqrt>("square root");
constinit const Op kSquare = unary_op<Unary::square>("x * x");
constinit const Op kTanh = unary_op<Unary::tanh>("hyperbolic tangent", true);
constinit const Op kSigmoid = unary_op<Unary::sigmoid>("1 / (1 + e to the -x)", true);
constinit const Op kAbs = unary_op<Unary::abs>("absolute value");
constinit const Op kSign = unary_op<Unary::sign>("-1, 0 or 1");
constinit const Op kSoftplus = unary_op<Unary::softplus>("log(1 + e to the x)", true);
constinit const Op kExpm1 = unary_op<Unary::expm1>("e to the x - 1", true);
constinit const Op kSin = unary_op<Unary::sin>("sine", true);
constinit const Op kCos = unary_op<Unary::cos>("cosine", true);
constinit const Op kFloor = unary_op<Unary::floor>("the whole number below");
constinit const Op kCeil = unary_op<Unary::ceil>("the whole number above");
constinit const Op kTrunc = unary_op<Unary::trunc>("the whole number towards 0");
constinit const Op kRound = unary_op<Unary::round>("the nearest whole number, halves to even ones");

Tensor add(const Tensor& a, const Tensor& b) { return binary(kAdd, a, b); }
Tensor subtract(const Tensor& a, const Tensor& b) { return binary(kSubtract, a, b); }
Tensor multiply(const Tensor& a, const Tensor& b) { return binary(kMultiply, a, b); }
Tensor divide(const Tensor& a, const Tensor& b) { return binary(kDivide, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary(kMaximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary(kMinimum, a, b); }
Tensor equal_mask(const Tensor& a, const Tensor& b) { return binary(kEqualMask, a, b); }
Tensor greater_mask(const Tensor& a, const Tensor& b) { return binary(kGreaterMask, a, b); }
Tensor greater_equal_mask(const Tensor& a, const Tensor& b) {
  return binary(kGreaterEqualMask, a, b);
}
Tensor floor_divide(const Tensor& a, const Tensor& b) { return binary(kFloorDivide, a, b); }
Tensor mod(const Tensor& a, const Tensor& b) { return binary(kMod, a, b); }
Tensor power(const Tensor& a, const Tensor& b) { return binary(kPower, a, b); }

Tensor negative(const Tensor& x) { return apply(kNegative, {x})[0]; }
Tensor exp(const Tensor& x) { return apply(kExp, {x})[0]; }
Tensor log(const Tensor& x) { return apply(kLog, {x})[0]; }
Tensor sqrt(const Tensor& x) { return apply(kSqrt, {x})[0]; }
Tensor square(const Tensor& x) { return apply(kSquare, {x})[0]; }
Tensor tanh(const Tensor& x) { return apply(kTanh, {x})[0]; }
Tensor sigmoid(const Tensor& x) { return apply(kSigmoid, {x})[0]; }
Tensor abs(const Tensor& x) { return apply(kAbs, {x})[0]; }
Tensor sign(const Tensor& x) { return apply(kSign, {x})[0]; }
Tensor softplus(const Tensor& x) { return apply(kSoftplus, {x})[0]; }
Tensor expm1(const Tensor& x) { return apply(kExpm1, {x})[0]; }
Tensor sin(const Tensor& x) { return apply(kSin, {x})[0]; }
Tensor cos(const Tensor& x) { return apply(kCos, {x})[0]; }
Tensor floor(const Tensor& x) { return apply(kFloor, {x})[0]; }
Tensor ceil(const Tensor& x) { return apply(kCeil, {x})[0]; }
Tensor trunc(const Tensor& x) { return apply(kTrunc, {x})[0]; }
Tensor round(const Tensor& x) { return apply(kRound, {x})[0]; }

}  // namespace pl
