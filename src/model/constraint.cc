#include "model/constraint.h"

#include <charconv>
#include <limits>

#include "base/error.h"
#include "model/spec.h"
#include "op/constrain.h"
#include "op/recorder.h"

namespace pl {
namespace {

// axis=0/1/2: several.
constexpr SpecEntry kEntries[] = {{"max_norm", "max_value axis="},
                                  {"non_neg"},
                                  {"unit_norm", "axis="},
                                  {"min_max_norm", "min_value max_value rate axis="}};

bool read_axes(const std::string& text, std::vector<int64_t>& axes) {
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    const auto [next, error] = std::from_chars(at, end, axes.emplace_back());
    if (error != std::errc() || (next < end && *next != '/')) return false;
    at = next + (next < end ? 1 : 0);
  }
  return !axes.empty();
}

ConstrainOptions options_of(const std::string& text) {
  const Spec spec = parse_spec("constraint", text, kEntries);
  ConstrainOptions options{.kind = spec.name == "non_neg" ? "non_neg" : "norm"};
  const double no_limit = std::numeric_limits<double>::max();
  options.axes.clear();
  if (!read_axes(spec.word("axis", "0"), options.axes))
    throw UserError("[model] constraint: expected axes such as axis=0 or axis=0/1/2, received '" +
                    text + "'");
  if (spec.name == "max_norm") options.most = spec.number("max_value", 2);
  if (spec.name == "unit_norm") options.least = options.most = 1;
  if (spec.name == "min_max_norm") {
    options.least = spec.number("min_value", 0);
    options.most = spec.number("max_value", 1);
    options.rate = spec.number("rate", 1);
  }
  if (!(options.least >= 0 && options.least <= options.most && options.most < no_limit &&
        options.rate >= 0 && options.rate <= 1))
    throw UserError(
        "[model] constraint: expected 0 <= min_value <= max_value and a rate from 0 to 1, "
        "received '" +
        text + "'");
  return options;
}

std::string with_axes(std::string text, const std::vector<int64_t>& axes) {
  text += text.find(':') == std::string::npos ? ":axis=" : ",axis=";
  for (size_t i = 0; i < axes.size(); ++i) text += (i ? "/" : "") + std::to_string(axes[i]);
  return text;
}

}  // namespace

void check_constraint(const std::string& text) {
  if (!text.empty()) options_of(text);
}

Tensor apply_constraint(const std::string& constraint, const Tensor& variable) {
  if (constraint.empty()) return variable;
  return constrain(last_version(variable), options_of(constraint));
}

namespace constraints {

std::string MaxNorm(MaxNormOptions options) {
  return with_axes(make_spec("max_norm", {{"max_value", options.max_value}}), options.axis);
}
std::string NonNeg() { return "non_neg"; }
std::string UnitNorm(std::vector<int64_t> axis) { return with_axes("unit_norm", axis); }
std::string MinMaxNorm(MinMaxNormOptions options) {
  return with_axes(make_spec("min_max_norm", {{"min_value", options.min_value},
                                              {"max_value", options.max_value},
                                              {"rate", options.rate}}),
                   options.axis);
}

}  // namespace constraints
}  // namespace pl
