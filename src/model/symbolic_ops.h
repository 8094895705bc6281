// Operators and keras.ops on symbols, as in Keras's functional models: x * 2.0 + y. Each is a layer
// without weights ("multiply", "add_1"), on tensors with the batch as dimension 0; masks end there.
#pragma once

#include <vector>

#include "model/layer.h"
#include "op/ops.h"

namespace pl {

Symbolic operator+(const Symbolic& a, const Symbolic& b);
Symbolic operator+(const Symbolic& a, const ops::Operand& b);
Symbolic operator+(const ops::Operand& a, const Symbolic& b);
Symbolic operator-(const Symbolic& a, const Symbolic& b);
Symbolic operator-(const Symbolic& a, const ops::Operand& b);
Symbolic operator-(const ops::Operand& a, const Symbolic& b);
Symbolic operator*(const Symbolic& a, const Symbolic& b);
Symbolic operator*(const Symbolic& a, const ops::Operand& b);
Symbolic operator*(const ops::Operand& a, const Symbolic& b);
Symbolic operator/(const Symbolic& a, const Symbolic& b);
Symbolic operator/(const Symbolic& a, const ops::Operand& b);
Symbolic operator/(const ops::Operand& a, const Symbolic& b);
Symbolic operator-(const Symbolic& x);

// Boolean.
Symbolic operator==(const Symbolic& a, const ops::Operand& b);
Symbolic operator!=(const Symbolic& a, const ops::Operand& b);
Symbolic operator<(const Symbolic& a, const Symbolic& b);
Symbolic operator<(const Symbolic& a, const ops::Operand& b);
Symbolic operator<=(const Symbolic& a, const ops::Operand& b);
Symbolic operator>(const Symbolic& a, const Symbolic& b);
Symbolic operator>(const Symbolic& a, const ops::Operand& b);
Symbolic operator>=(const Symbolic& a, const ops::Operand& b);

namespace ops {

Symbolic abs(const Symbolic& x);
Symbolic square(const Symbolic& x);
Symbolic sqrt(const Symbolic& x);
Symbolic exp(const Symbolic& x);
Symbolic log(const Symbolic& x);
Symbolic tanh(const Symbolic& x);
Symbolic sigmoid(const Symbolic& x);
Symbolic softplus(const Symbolic& x);
Symbolic relu(const Symbolic& x);
Symbolic sin(const Symbolic& x);
Symbolic cos(const Symbolic& x);
Symbolic stop_gradient(const Symbolic& x);
Symbolic power(const Symbolic& x, Number power);
Symbolic clip(const Symbolic& x, Number least, Number most);
Symbolic maximum(const Symbolic& a, const Symbolic& b);
Symbolic maximum(const Symbolic& a, const Operand& b);
Symbolic minimum(const Symbolic& a, const Symbolic& b);
Symbolic minimum(const Symbolic& a, const Operand& b);
Symbolic matmul(const Symbolic& a, const Symbolic& b);
Symbolic softmax(const Symbolic& x, int64_t axis = -1);
Symbolic log_softmax(const Symbolic& x, int64_t axis = -1);
Symbolic normalize(const Symbolic& x, int64_t axis = -1);

Symbolic equal(const Symbolic& a, const Symbolic& b);
Symbolic not_equal(const Symbolic& a, const Symbolic& b);
Symbolic where(const Symbolic& condition, const Symbolic& a, const Symbolic& b);
Symbolic where(const Symbolic& condition, const Symbolic& a, const Operand& b);
Symbolic where(const Symbolic& condition, const Operand& a, const Symbolic& b);
Symbolic cast(const Symbolic& x, Dtype dtype);
Symbolic cast(const Symbolic& x, const std::string& dtype);
Symbolic one_hot(const Symbolic& labels, Dim num_classes);
Symbolic argmax(const Symbolic& x, int64_t axis, bool keepdims = false);
Symbolic argmin(const Symbolic& x, int64_t axis, bool keepdims = false);
Symbolic sort(const Symbolic& x, int64_t axis = -1);
Symbolic flip(const Symbolic& x, const Axis& axis);
Symbolic cumsum(const Symbolic& x, int64_t axis);
Symbolic einsum(const std::string& equation, const std::vector<Symbolic>& operands);

// Over axes behind the batch.
Symbolic sum(const Symbolic& x, const Axis& axis, bool keepdims = false);
Symbolic mean(const Symbolic& x, const Axis& axis, bool keepdims = false);
Symbolic max(const Symbolic& x, const Axis& axis, bool keepdims = false);
Symbolic min(const Symbolic& x, const Axis& axis, bool keepdims = false);
Symbolic var(const Symbolic& x, const Axis& axis, bool keepdims = false);

Symbolic reshape(const Symbolic& x, const std::vector<Dim>& shape);  // with -1 for the batch
Symbolic transpose(const Symbolic& x, const std::vector<int64_t>& axes);
Symbolic expand_dims(const Symbolic& x, int64_t axis);
Symbolic squeeze(const Symbolic& x, const Axis& axis);
Symbolic take(const Symbolic& x, int64_t index, int64_t axis);
Symbolic slice(const Symbolic& x, const std::vector<Dim>& start, const std::vector<Dim>& size);
Symbolic repeat(const Symbolic& x, int64_t times, int64_t axis);
std::vector<Symbolic> split(const Symbolic& x, int64_t sections, int64_t axis);
Symbolic concatenate(const std::vector<Symbolic>& parts, int64_t axis = -1);
Symbolic stack(const std::vector<Symbolic>& parts, int64_t axis);

}  // namespace ops
}  // namespace pl
