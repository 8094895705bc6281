// + - * / and comparisons on tensors, numbers and what converts to tensors (variables), with
// NumPy's broadcasting. Operands of different dtypes meet in Keras's common one: integers become
// floats beside floats, a plain number takes the tensor's dtype. On values they run at once, on
// symbols they are recorded, as all ops.
#pragma once

#include "op/number.h"
#include "op/op.h"

namespace pl {

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, Number b);
Tensor operator+(Number a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, Number b);
Tensor operator-(Number a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, Number b);
Tensor operator*(Number a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);  // of integers too: a floating result
Tensor operator/(const Tensor& a, Number b);
Tensor operator/(Number a, const Tensor& b);
Tensor operator-(const Tensor& x);

// Boolean results, element by element.
Tensor operator==(const Tensor& a, const Tensor& b);
Tensor operator==(const Tensor& a, Number b);
Tensor operator!=(const Tensor& a, const Tensor& b);
Tensor operator!=(const Tensor& a, Number b);
Tensor operator<(const Tensor& a, const Tensor& b);
Tensor operator<(const Tensor& a, Number b);
Tensor operator<=(const Tensor& a, const Tensor& b);
Tensor operator<=(const Tensor& a, Number b);
Tensor operator>(const Tensor& a, const Tensor& b);
Tensor operator>(const Tensor& a, Number b);
Tensor operator>=(const Tensor& a, const Tensor& b);
Tensor operator>=(const Tensor& a, Number b);
inline Tensor operator==(Number a, const Tensor& b) { return b == a; }
inline Tensor operator!=(Number a, const Tensor& b) { return b != a; }
inline Tensor operator<(Number a, const Tensor& b) { return b > a; }
inline Tensor operator<=(Number a, const Tensor& b) { return b >= a; }
inline Tensor operator>(Number a, const Tensor& b) { return b < a; }
inline Tensor operator>=(Number a, const Tensor& b) { return b <= a; }
Tensor operator&&(const Tensor& a, const Tensor& b);  // both are evaluated
Tensor operator||(const Tensor& a, const Tensor& b);
Tensor operator!(const Tensor& x);

inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a = a + b; }
inline Tensor& operator+=(Tensor& a, Number b) { return a = a + b; }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a = a - b; }
inline Tensor& operator-=(Tensor& a, Number b) { return a = a - b; }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a = a * b; }
inline Tensor& operator*=(Tensor& a, Number b) { return a = a * b; }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a = a / b; }
inline Tensor& operator/=(Tensor& a, Number b) { return a = a / b; }

// What operands of two dtypes meet in: the wider of two floats or of two integers, the float of a
// float and an integer; booleans and bytes count as int32.
Dtype common_dtype(Dtype a, Dtype b);
// The dtype of `x` as an operand beside a number: int64 beside one that no int32 is.
Dtype common_dtype(Dtype x, Number number);

}  // namespace pl
