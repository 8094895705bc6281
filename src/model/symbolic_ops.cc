#include "model/symbolic_ops.h"

#include "model/layers.h"

namespace pl {
namespace {

// A function of tensors as a layer of its own, called on these symbols.
template <class F>
Symbolic one(const char* kind, const Symbolic& x, F function) {
  return op_layer(kind, [function](const Tensors& in) { return function(in[0]); })(x);
}
template <class F>
Symbolic two(const char* kind, const Symbolic& a, const Symbolic& b, F function) {
  const auto run = [function](const Tensors& in) { return function(in[0], in[1]); };
  return op_layer(kind, run)(std::vector<Symbolic>{a, b});
}

}  // namespace

Symbolic operator+(const Symbolic& a, const Symbolic& b) {
  return two("Add", a, b, [](const Tensor& x, const Tensor& y) { return x + y; });
}
Symbolic operator+(const Symbolic& a, const ops::Operand& b) {
  return one("Add", a, [b](const Tensor& x) { return ops::add(x, b); });
}
Symbolic operator+(const ops::Operand& a, const Symbolic& b) {
  return one("Add", b, [a](const Tensor& x) { return ops::add(a, x); });
}
Symbolic operator-(const Symbolic& a, const Symbolic& b) {
  return two("Subtract", a, b, [](const Tensor& x, const Tensor& y) { return x - y; });
}
Symbolic operator-(const Symbolic& a, const ops::Operand& b) {
  return one("Subtract", a, [b](const Tensor& x) { return ops::subtract(x, b); });
}
Symbolic operator-(const ops::Operand& a, const Symbolic& b) {
  return one("Subtract", b, [a](const Tensor& x) { return ops::subtract(a, x); });
}
Symbolic operator*(const Symbolic& a, const Symbolic& b) {
  return two("Multiply", a, b, [](const Tensor& x, const Tensor& y) { return x * y; });
}
Symbolic operator*(const Symbolic& a, const ops::Operand& b) {
  return one("Multiply", a, [b](const Tensor& x) { return ops::multiply(x, b); });
}
Symbolic operator*(const ops::Operand& a, const Symbolic& b) {
  return one("Multiply", b, [a](const Tensor& x) { return ops::multiply(a, x); });
}
Symbolic operator/(const Symbolic& a, const Symbolic& b) {
  return two("Divide", a, b, [](const Tensor& x, const Tensor& y) { return x / y; });
}
Symbolic operator/(const Symbolic& a, const ops::Operand& b) {
  return one("Divide", a, [b](const Tensor& x) { return ops::divide(x, b); });
}
Symbolic operator/(const ops::Operand& a, const Symbolic& b) {
  return one("Divide", b, [a](const Tensor& x) { return ops::divide(a, x); });
}
Symbolic operator-(const Symbolic& x) {
  return one("Negative", x, [](const Tensor& in) { return -in; });
}

Symbolic operator==(const Symbolic& a, const ops::Operand& b) {
  return one("Equal", a, [b](const Tensor& x) { return ops::equal(x, b); });
}
Symbolic operator!=(const Symbolic& a, const ops::Operand& b) {
  return one("NotEqual", a, [b](const Tensor& x) { return ops::not_equal(x, b); });
}
Symbolic operator<(const Symbolic& a, const Symbolic& b) {
  return two("Less", a, b, [](const Tensor& x, const Tensor& y) { return x < y; });
}
Symbolic operator<(const Symbolic& a, const ops::Operand& b) {
  return one("Less", a, [b](const Tensor& x) { return ops::less(x, b); });
}
Symbolic operator<=(const Symbolic& a, const ops::Operand& b) {
  return one("LessEqual", a, [b](const Tensor& x) { return ops::less_equal(x, b); });
}
Symbolic operator>(const Symbolic& a, const Symbolic& b) { return b < a; }
Symbolic operator>(const Symbolic& a, const ops::Operand& b) {
  return one("Greater", a, [b](const Tensor& x) { return ops::greater(x, b); });
}
Symbolic operator>=(const Symbolic& a, const ops::Operand& b) {
  return one("GreaterEqual", a, [b](const Tensor& x) { return ops::greater_equal(x, b); });
}

namespace ops {

Symbolic equal(const Symbolic& a, const Symbolic& b) {
  return two("Equal", a, b, [](const Tensor& x, const Tensor& y) { return ops::equal(x, y); });
}
Symbolic not_equal(const Symbolic& a, const Symbolic& b) {
  return two("NotEqual", a, b,
             [](const Tensor& x, const Tensor& y) { return ops::not_equal(x, y); });
}
Symbolic where(const Symbolic& condition, const Symbolic& a, const Symbolic& b) {
  const auto run = [](const Tensors& in) { return ops::where(in[0], in[1], in[2]); };
  return op_layer("Where", run)(std::vector<Symbolic>{condition, a, b});
}
Symbolic where(const Symbolic& condition, const Symbolic& a, const Operand& b) {
  return two("Where", condition, a,
             [b](const Tensor& c, const Tensor& x) { return ops::where(c, x, b); });
}
Symbolic where(const Symbolic& condition, const Operand& a, const Symbolic& b) {
  return two("Where", condition, b,
             [a](const Tensor& c, const Tensor& y) { return ops::where(c, a, y); });
}
Symbolic cast(const Symbolic& x, Dtype dtype) {
  return one("Cast", x, [dtype](const Tensor& in) { return ops::cast(in, dtype); });
}
Symbolic cast(const Symbolic& x, const std::string& dtype) {
  return one("Cast", x, [dtype](const Tensor& in) { return ops::cast(in, dtype); });
}
Symbolic one_hot(const Symbolic& labels, Dim num_classes) {
  return one("OneHot", labels,
             [num_classes](const Tensor& in) { return ops::one_hot(in, num_classes); });
}
Symbolic argmax(const Symbolic& x, int64_t axis, bool keepdims) {
  return one("Argmax", x, [=](const Tensor& in) { return ops::argmax(in, axis, keepdims); });
}
Symbolic argmin(const Symbolic& x, int64_t axis, bool keepdims) {
  return one("Argmin", x, [=](const Tensor& in) { return ops::argmin(in, axis, keepdims); });
}
Symbolic sort(const Symbolic& x, int64_t axis) {
  return one("Sort", x, [axis](const Tensor& in) { return ops::sort(in, axis); });
}
Symbolic flip(const Symbolic& x, const Axis& axis) {
  return one("Flip", x, [axis](const Tensor& in) { return ops::flip(in, axis); });
}
Symbolic cumsum(const Symbolic& x, int64_t axis) {
  return one("Cumsum", x, [axis](const Tensor& in) { return ops::cumsum(in, axis); });
}
Symbolic einsum(const std::string& equation, const std::vector<Symbolic>& operands) {
  const auto run = [equation](const Tensors& in) { return ops::einsum(equation, in); };
  return op_layer("Einsum", run)(operands);
}

Symbolic abs(const Symbolic& x) {
  return one("Absolute", x, [](const Tensor& in) { return ops::abs(in); });
}
Symbolic square(const Symbolic& x) {
  return one("Square", x, [](const Tensor& in) { return ops::square(in); });
}
Symbolic sqrt(const Symbolic& x) {
  return one("Sqrt", x, [](const Tensor& in) { return ops::sqrt(in); });
}
Symbolic exp(const Symbolic& x) {
  return one("Exp", x, [](const Tensor& in) { return ops::exp(in); });
}
Symbolic log(const Symbolic& x) {
  return one("Log", x, [](const Tensor& in) { return ops::log(in); });
}
Symbolic tanh(const Symbolic& x) {
  return one("Tanh", x, [](const Tensor& in) { return ops::tanh(in); });
}
Symbolic sigmoid(const Symbolic& x) {
  return one("Sigmoid", x, [](const Tensor& in) { return ops::sigmoid(in); });
}
Symbolic softplus(const Symbolic& x) {
  return one("Softplus", x, [](const Tensor& in) { return ops::softplus(in); });
}
Symbolic relu(const Symbolic& x) {
  return one("Relu", x, [](const Tensor& in) { return ops::relu(in); });
}
Symbolic sin(const Symbolic& x) {
  return one("Sin", x, [](const Tensor& in) { return ops::sin(in); });
}
Symbolic cos(const Symbolic& x) {
  return one("Cos", x, [](const Tensor& in) { return ops::cos(in); });
}
Symbolic stop_gradient(const Symbolic& x) {
  return one("StopGradient", x, [](const Tensor& in) { return ops::stop_gradient(in); });
}
Symbolic power(const Symbolic& x, Number power) {
  return one("Power", x, [power](const Tensor& in) { return ops::power(in, power); });
}
Symbolic clip(const Symbolic& x, Number least, Number most) {
  return one("Clip", x, [=](const Tensor& in) { return ops::clip(in, least, most); });
}
Symbolic maximum(const Symbolic& a, const Symbolic& b) {
  return two("Maximum", a, b, [](const Tensor& x, const Tensor& y) { return ops::maximum(x, y); });
}
Symbolic maximum(const Symbolic& a, const Operand& b) {
  return one("Maximum", a, [b](const Tensor& x) { return ops::maximum(x, b); });
}
Symbolic minimum(const Symbolic& a, const Symbolic& b) {
  return two("Minimum", a, b, [](const Tensor& x, const Tensor& y) { return ops::minimum(x, y); });
}
Symbolic minimum(const Symbolic& a, const Operand& b) {
  return one("Minimum", a, [b](const Tensor& x) { return ops::minimum(x, b); });
}
Symbolic matmul(const Symbolic& a, const Symbolic& b) {
  return two("Matmul", a, b, [](const Tensor& x, const Tensor& y) { return ops::matmul(x, y); });
}
Symbolic softmax(const Symbolic& x, int64_t axis) {
  return one("Softmax", x, [axis](const Tensor& in) { return ops::softmax(in, axis); });
}
Symbolic log_softmax(const Symbolic& x, int64_t axis) {
  return one("LogSoftmax", x, [axis](const Tensor& in) { return ops::log_softmax(in, axis); });
}
Symbolic normalize(const Symbolic& x, int64_t axis) {
  return one("Normalize", x, [axis](const Tensor& in) { return ops::normalize(in, axis); });
}

Symbolic sum(const Symbolic& x, const Axis& axis, bool keepdims) {
  return one("Sum", x, [=](const Tensor& in) { return ops::sum(in, axis, keepdims); });
}
Symbolic mean(const Symbolic& x, const Axis& axis, bool keepdims) {
  return one("Mean", x, [=](const Tensor& in) { return ops::mean(in, axis, keepdims); });
}
Symbolic max(const Symbolic& x, const Axis& axis, bool keepdims) {
  return one("Max", x, [=](const Tensor& in) { return ops::max(in, axis, keepdims); });
}
Symbolic min(const Symbolic& x, const Axis& axis, bool keepdims) {
  return one("Min", x, [=](const Tensor& in) { return ops::min(in, axis, keepdims); });
}
Symbolic var(const Symbolic& x, const Axis& axis, bool keepdims) {
  return one("Var", x, [=](const Tensor& in) { return ops::var(in, axis, keepdims); });
}

Symbolic reshape(const Symbolic& x, const std::vector<Dim>& shape) {
  return one("Reshape", x, [shape](const Tensor& in) { return ops::reshape(in, shape); });
}
Symbolic transpose(const Symbolic& x, const std::vector<int64_t>& axes) {
  return one("Transpose", x, [axes](const Tensor& in) { return ops::transpose(in, axes); });
}
Symbolic expand_dims(const Symbolic& x, int64_t axis) {
  return one("ExpandDims", x, [axis](const Tensor& in) { return ops::expand_dims(in, axis); });
}
Symbolic squeeze(const Symbolic& x, const Axis& axis) {
  return one("Squeeze", x, [axis](const Tensor& in) { return ops::squeeze(in, axis); });
}
Symbolic take(const Symbolic& x, int64_t index, int64_t axis) {
  return one("Take", x, [=](const Tensor& in) { return ops::take(in, index, axis); });
}
Symbolic slice(const Symbolic& x, const std::vector<Dim>& start, const std::vector<Dim>& size) {
  return one("Slice", x, [=](const Tensor& in) { return ops::slice(in, start, size); });
}
Symbolic repeat(const Symbolic& x, int64_t times, int64_t axis) {
  return one("Repeat", x, [=](const Tensor& in) { return ops::repeat(in, times, axis); });
}
std::vector<Symbolic> split(const Symbolic& x, int64_t sections, int64_t axis) {
  std::vector<Symbolic> parts;
  for (int64_t s = 0; s < sections; ++s)
    parts.push_back(one("Split", x, [=](const Tensor& in) {
      return ops::split(in, sections, axis)[static_cast<size_t>(s)];
    }));
  return parts;
}
Symbolic concatenate(const std::vector<Symbolic>& parts, int64_t axis) {
  const auto run = [axis](const Tensors& in) { return ops::concatenate(in, axis); };
  return op_layer("Concatenate", run)(parts);
}
Symbolic stack(const std::vector<Symbolic>& parts, int64_t axis) {
  const auto run = [axis](const Tensors& in) { return ops::stack(in, axis); };
  return op_layer("Stack", run)(parts);
}

}  // namespace ops
}  // namespace pl
