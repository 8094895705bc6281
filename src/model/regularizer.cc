#include "model/regularizer.h"

#include "base/error.h"
#include "model/network.h"
#include "model/spec.h"
#include "op/functions.h"
#include "op/recorder.h"

namespace pl {
namespace {

constexpr SpecEntry kEntries[] = {
    {"l1", "l1"}, {"l2", "l2"}, {"l1_l2", "l1 l2"}, {"orthogonal_regularizer", "factor mode="}};

Spec checked_spec(const std::string& text) {
  Spec spec = parse_spec("regularizer", text, kEntries);
  auto refuse = [&](const char* expected) {
    throw UserError("[model] regularizer: expected " + std::string(expected) + ", received '" +
                    text + "'");
  };
  for (const char* key : {"l1", "l2", "factor"})
    if (!(spec.number(key, 0) >= 0)) refuse("factors from 0");
  const std::string mode = spec.word("mode", "rows");
  if (mode != "rows" && mode != "columns") refuse("mode rows or columns");
  return spec;
}

// Half the mean of |cosine| between all pairs of rows (or columns), times the factor.
Tensor orthogonal(const Spec& spec, const Tensor& x) {
  if (x.shape().rank() != 2)
    throw UserError("[model] regularizer: expected a weight of two dimensions for " + spec.name +
                    ", received " + x.shape().text());
  const bool rows = spec.word("mode", "rows") == "rows";
  const auto size = static_cast<double>(x.shape()[rows ? 0 : 1]);
  if (size < 2)
    throw UserError("[model] regularizer: expected at least two rows or columns for " + spec.name +
                    ", received " + x.shape().text());
  const Tensor unit = unit_length(x, {rows ? 1 : 0});
  const Tensor products = matmul(unit, unit, {.transpose_a = !rows, .transpose_b = rows});
  // Without the diagonal, the squares of the unit vectors.
  const Tensor off = subtract(reduce_sum(abs(products)), reduce_sum(square(unit)));
  return scale(off, spec.number("factor", 0.01) / (size * (size - 1)));
}

}  // namespace

void check_regularizer(const std::string& text) {
  if (!text.empty()) checked_spec(text);
}

Tensor unit_length(const Tensor& x, const std::vector<int64_t>& axes) {
  // Bounded before the root, whose slope at 0 has no bound.
  const Tensor squares = maximum(reduce_sum(square(x), axes, true), fill({}, 1e-14, x.dtype()));
  return divide(x, sqrt(squares));
}

Tensor penalty(const std::string& regularizer, const Tensor& x) {
  const Spec spec = checked_spec(regularizer);
  if (spec.name == "orthogonal_regularizer") return orthogonal(spec, x);
  const bool plain = spec.name != "l1_l2";
  const double l1 = spec.number("l1", spec.name == "l1" ? 0.01 : 0);
  const double l2 = spec.number("l2", spec.name == "l2" ? 0.01 : 0);
  Tensor sum;
  if (l1 != 0 || (plain && spec.name == "l1")) sum = scale(reduce_sum(abs(x)), l1);
  if (l2 != 0 || !sum.defined()) {
    const Tensor squares = scale(reduce_sum(square(x)), l2);
    sum = sum.defined() ? add(sum, squares) : squares;
  }
  return sum;
}

Tensor add_penalties(const Tensor& loss, const Network& network, const Tensors& weights,
                     const Tensors& others) {
  Tensor sum = loss;
  auto include = [&](const Tensor& term) { sum = add(sum, cast(term, sum.dtype())); };
  for (size_t w = 0; w < weights.size(); ++w) {
    const NetworkWeight& weight = network.weights()[w];
    if (weight.regularizer.empty() || !weight.trainable) continue;
    PathScope scope(loss.recorder(), weight.path);
    include(penalty(weight.regularizer, weights[w]));
  }
  for (const Tensor& other : others) include(other);
  return sum;
}

namespace regularizers {

std::string L1(double l1) { return make_spec("l1", {{"l1", l1}}); }
std::string L2(double l2) { return make_spec("l2", {{"l2", l2}}); }
std::string L1L2(L1L2Options options) {
  return make_spec("l1_l2", {{"l1", options.l1}, {"l2", options.l2}});
}
std::string OrthogonalRegularizer(OrthogonalOptions options) {
  return make_spec("orthogonal_regularizer", {{"factor", options.factor}}) +
         ",mode=" + options.mode;
}

}  // namespace regularizers
}  // namespace pl
