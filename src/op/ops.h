// keras.ops: the everyday functions of Keras and tf.math under their names, on values and symbols,
// all of them made of the ops in functions.h. Numbers may stand for tensors, dtypes meet as with
// operators (operators.h), axes may be negative and count the batch as 0.
//
//   const Tensor error = ops::clip(ops::abs(y_true - y_pred), 0, 1);
//   return ops::mean(ops::where(weight > 0, error * weight, 0.0), -1);
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "op/operators.h"

namespace pl {

// A value: a number, a vector or a matrix. Whole numbers are exact in int64 and wrap in what is
// narrower.
Tensor constant(Number value, Dtype dtype = Dtype::float32);
Tensor constant(std::initializer_list<Number> values, Dtype dtype = Dtype::float32);
Tensor constant(std::initializer_list<std::initializer_list<Number>> rows,
                Dtype dtype = Dtype::float32);
Tensor constant(const std::vector<double>& values, const Shape& shape,
                Dtype dtype = Dtype::float32);
template <std::same_as<int64_t> T>
Tensor constant(const std::vector<T>& values, const Shape& shape, Dtype dtype = Dtype::int64);
// The element of a value that has one, and all of them.
double item(const Tensor& value);
std::vector<double> to_vector(const Tensor& value);
// The same as integers, exact beyond 2^53 too: item<int64_t>(x). Floats lose their fractions.
template <std::same_as<int64_t> T>
T item(const Tensor& value);
template <std::same_as<int64_t> T>
std::vector<T> to_vector(const Tensor& value);

namespace ops {

// No axis (all of them), one, or several.
struct Axis {
  Axis() = default;
  Axis(std::integral auto one) : list{static_cast<int64_t>(one)} {}
  Axis(std::initializer_list<int64_t> several) : list(several) {}
  Axis(std::vector<int64_t> several) : list(std::move(several)) {}
  std::vector<int64_t> list;
};

// A tensor, or a number in place of one.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(tensor) {}
  template <class T>
  requires(std::convertible_to<T, Tensor> && !std::same_as<T, Tensor>) Operand(const T& tensor)
      : tensor_(tensor) {}
  Operand(Number number) : number_(number) {}
  template <class T>
  requires(std::integral<T> || std::floating_point<T>) Operand(T number) : number_(number) {}
  const Tensor& tensor() const { return tensor_; }
  const std::optional<Number>& number() const { return number_; }
  // In this dtype, without dimensions where it is a number.
  Tensor in(Dtype dtype) const;

 private:
  Tensor tensor_;
  std::optional<Number> number_;
};
Dtype common_dtype(const Operand& a, const Operand& b);  // numbers alone: float32 or integers

// Element by element.
Tensor add(const Operand& a, const Operand& b);
Tensor subtract(const Operand& a, const Operand& b);
Tensor multiply(const Operand& a, const Operand& b);
Tensor divide(const Operand& a, const Operand& b);
Tensor true_divide(const Operand& a, const Operand& b);
Tensor floor_divide(const Operand& a, const Operand& b);  // of integers by 0: 0
Tensor mod(const Operand& a, const Operand& b);           // the sign of b; of integers by 0: 0
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);
// NaN where x is negative and the power no whole number. Integers stay integers and wrap; below 0,
// a power that is a number is refused, and elsewhere the result is 0 (but for x of 1 and -1).
Tensor power(const Operand& x, const Operand& power);
inline Tensor pow(const Operand& x, const Operand& exponent) {
  const WordScope word("pow");
  return ops::power(x, exponent);
}
Tensor squared_difference(const Operand& a, const Operand& b);
Tensor clip(const Tensor& x, const Operand& least, const Operand& most);

Tensor negative(const Tensor& x);
Tensor abs(const Tensor& x);
inline Tensor absolute(const Tensor& x) {
  const WordScope word("absolute");
  return ops::abs(x);
}
Tensor sign(const Tensor& x);
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor softplus(const Tensor& x);
Tensor relu(const Tensor& x);  // integers stay integers
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  // halves to even numbers
Tensor trunc(const Tensor& x);

// Boolean.
Tensor equal(const Operand& a, const Operand& b);
Tensor not_equal(const Operand& a, const Operand& b);
Tensor less(const Operand& a, const Operand& b);
Tensor less_equal(const Operand& a, const Operand& b);
Tensor greater(const Operand& a, const Operand& b);
Tensor greater_equal(const Operand& a, const Operand& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);
Tensor isinf(const Tensor& x);
// a where the condition holds, b elsewhere; what is not chosen, NaN too, has no part in it.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);

// Over axes; none given: over all.
Tensor sum(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor mean(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor max(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor min(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor prod(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor var(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor std(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor logsumexp(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor norm(const Tensor& x, const Axis& axis = {}, bool keepdims = false);  // root of squares
Tensor any(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor all(const Tensor& x, const Axis& axis = {}, bool keepdims = false);
Tensor count_nonzero(const Tensor& x, const Axis& axis = {});  // int32
Tensor cumsum(const Tensor& x, int64_t axis);
// int32, the first of equal ones; no axis: of x in one row.
Tensor argmax(const Tensor& x, std::optional<int64_t> axis = {}, bool keepdims = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> axis = {}, bool keepdims = false);

// Shapes.
Tensor reshape(const Tensor& x, const std::vector<Dim>& shape);
Tensor ravel(const Tensor& x);
Tensor transpose(const Tensor& x, const std::vector<int64_t>& axes = {});
Tensor swapaxes(const Tensor& x, int64_t a, int64_t b);
Tensor moveaxis(const Tensor& x, int64_t source, int64_t destination);
Tensor expand_dims(const Tensor& x, int64_t axis);
Tensor squeeze(const Tensor& x, const Axis& axis = {});
Tensor broadcast_to(const Tensor& x, const Shape& shape);
Tensor concatenate(const Tensors& parts, int64_t axis = -1);  // of several dtypes too
Tensor stack(const Tensors& parts, int64_t axis = 0);
Tensors unstack(const Tensor& x, int64_t axis = 0);
Tensors split(const Tensor& x, int64_t sections, int64_t axis = 0);
// Elements [start, start + size) along each axis; a size of -1: all that are left.
Tensor slice(const Tensor& x, const std::vector<Dim>& start, const std::vector<Dim>& size);
// Elements by number along an axis. In these words alone, numbers below 0 count from the end. One
// that is outside after that is an error where values are taken on the processor; in a graph and on
// a device it gives NaN, of integers the least, of bytes 255, of booleans true, and no gradient.
Tensor take(const Tensor& x, int64_t index, int64_t axis);  // x[:, index]; without that axis
// x[:, indices]: their dimensions take the axis's place.
Tensor take(const Tensor& x, const Tensor& indices, int64_t axis);
// x[i, indices[i, j]]: an index for each element; the other dimensions broadcast.
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int64_t axis = -1);
Tensor repeat(const Tensor& x, int64_t times, int64_t axis);
Tensor tile(const Tensor& x, const std::vector<int64_t>& repeats);
Tensor roll(const Tensor& x, int64_t shift, int64_t axis);
// {before, behind} for each axis, neither negative.
Tensor pad(const Tensor& x, const std::vector<std::pair<Dim, Dim>>& width, Number value = 0);

Tensor flip(const Tensor& x, const Axis& axis = {});

// Order along an axis, of any dtype. Equal elements stay in their order; NaN is the largest.
Tensor argsort(const Tensor& x, int64_t axis = -1);  // int32
Tensor sort(const Tensor& x, int64_t axis = -1);
struct TopK {
  Tensor values, indices;  // (..., k), the largest first; int32
};
TopK top_k(const Tensor& x, int64_t k);  // of the last axis

// Products: matrices in the last two dimensions, the others broadcast; vectors as rows or columns.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);  // matmul, or a product with one number
Tensor outer(const Tensor& a, const Tensor& b);
// "bij,bjk->bik", "...d,de->...e", "ij->ji", "ij->": letters that the result lacks are summed over.
// Without "->" the result has the letters that occur once, in their order. A letter twice in an
// operand stands for its diagonal: "ii->i", "ii->".
Tensor einsum(const std::string& equation, const Tensors& operands);

Tensor softmax(const Tensor& x, int64_t axis = -1);
Tensor log_softmax(const Tensor& x, int64_t axis = -1);
Tensor normalize(const Tensor& x, int64_t axis = -1, double epsilon = 1e-12);  // length 1
Tensor one_hot(const Tensor& labels, Dim num_classes, Dtype dtype = Dtype::float32);
Tensor cast(const Tensor& x, Dtype dtype);
Tensor cast(const Tensor& x, const std::string& dtype);
Tensor stop_gradient(const Tensor& x);

Tensor zeros(const Shape& shape, Dtype dtype = Dtype::float32);
Tensor ones(const Shape& shape, Dtype dtype = Dtype::float32);
Tensor full(const Shape& shape, Number value, Dtype dtype = Dtype::float32);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, Number value);
Tensor arange(Dim stop, Dtype dtype = Dtype::int32);
Tensor linspace(double start, double stop, Dim num, Dtype dtype = Dtype::float32);  // both ends
Tensor eye(Dim n, Dtype dtype = Dtype::float32);

}  // namespace ops
}  // namespace pl
