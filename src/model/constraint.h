// Constraints, with Keras's names and formulas: what is done to a weight behind each update.
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

// A constraint is a text (model/spec.h): "max_norm:2"; "" is none. These functions write such
// texts. Norms are taken along the axes, which are neighbours: {0} for the columns of a matrix, {0,
// 1, 2} for the filters of a convolution.
namespace constraints {

struct MaxNormOptions {
  double max_value = 2;
  std::vector<int64_t> axis = {0};
};
std::string MaxNorm(MaxNormOptions options = {});
// MaxNorm(2): a template, so that {} is the options' default.
template <std::convertible_to<double> Number>
std::string MaxNorm(Number max_value) {
  return MaxNorm(MaxNormOptions{.max_value = static_cast<double>(max_value)});
}
std::string NonNeg();
std::string UnitNorm(std::vector<int64_t> axis = {0});
struct MinMaxNormOptions {
  double min_value = 0;
  double max_value = 1;
  double rate = 1;
  std::vector<int64_t> axis = {0};
};
std::string MinMaxNorm(MinMaxNormOptions options = {});

}  // namespace constraints

void check_constraint(const std::string& text);  // throws UserError listing the known ones

// Appends the constraint on the newest version of a variable, which it replaces; answers the next
// one. Nothing for "".
Tensor apply_constraint(const std::string& constraint, const Tensor& variable);

}  // namespace pl
