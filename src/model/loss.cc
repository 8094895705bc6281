// Losses: the one list, weights and reductions. Formulas are in loss_*.cc.
#include "model/loss.h"

#include <algorithm>

#include "base/error.h"
#include "model/loss_formulas.h"
#include "model/target_shape.h"
#include "op/functions.h"

namespace pl {
namespace {

using formula::Call;

struct Entry {
  const char* name;
  const char* short_name;  // Keras's, or ""
  LossResult (*values)(const Call&);
  const char* options;  // that it reads, separated by spaces
};
// The one list of losses.
constexpr Entry kLosses[] = {
    {"sparse_categorical_crossentropy", "", formula::sparse_categorical_crossentropy,
     "axis ignore_class"},
    {"categorical_crossentropy", "", formula::categorical_crossentropy, "axis label_smoothing"},
    {"categorical_focal_crossentropy", "", formula::categorical_focal_crossentropy,
     "alpha axis gamma label_smoothing"},
    {"categorical_generalized_cross_entropy", "", formula::categorical_generalized_cross_entropy,
     "axis q"},
    {"binary_crossentropy", "bce", formula::binary_crossentropy, "label_smoothing"},
    {"binary_focal_crossentropy", "", formula::binary_focal_crossentropy,
     "alpha apply_class_balancing gamma label_smoothing"},
    {"ctc", "", formula::ctc, ""},
    {"mean_squared_error", "mse", formula::mean_squared_error, ""},
    {"mean_absolute_error", "mae", formula::mean_absolute_error, ""},
    {"mean_absolute_percentage_error", "mape", formula::mean_absolute_percentage_error, ""},
    {"mean_squared_logarithmic_error", "msle", formula::mean_squared_logarithmic_error, ""},
    {"cosine_similarity", "", formula::cosine_similarity, "axis"},
    {"huber", "", formula::huber, "delta"},
    {"log_cosh", "logcosh", formula::log_cosh, ""},
    {"kl_divergence", "kld", formula::kl_divergence, ""},
    {"poisson", "", formula::poisson, ""},
    {"hinge", "", formula::hinge, ""},
    {"squared_hinge", "", formula::squared_hinge, ""},
    {"categorical_hinge", "", formula::categorical_hinge, ""},
    {"dice", "", formula::dice, "axis"},
    {"tversky", "", formula::tversky, "alpha axis beta"},
    {"circle", "", formula::circle, "gamma margin remove_diagonal"},
};

constexpr const char* kReductions[] = {"sum_over_batch_size", "mean", "sum",
                                       "mean_with_sample_weight", "none"};

// Keras takes names in both spellings: MeanSquaredError and mean_squared_error.
const Entry* find_loss(const std::string& name) {
  auto plain = [](std::string_view text) {
    std::string out;
    for (char c : text)
      if (c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return out;
  };
  for (const Entry& entry : kLosses)
    if (plain(name) == plain(entry.name) ||
        (*entry.short_name && plain(name) == plain(entry.short_name)))
      return &entry;
  return nullptr;
}

const Entry& get_loss(const std::string& name) {
  if (const Entry* entry = find_loss(name)) return *entry;
  std::string known;
  for (const Entry& entry : kLosses) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  throw UserError("[compile] loss: expected one of " + known + ", received '" + name + "'");
}

bool is_mean(const Loss& loss) {
  return loss.reduction == "sum_over_batch_size" || loss.reduction == "mean";
}

Tensor sum_of(const Tensor& x) { return x.shape().rank() == 0 ? x : reduce_sum(x); }

// a / b, and 0 where b is 0.
Tensor divide_no_nan(const Tensor& a, const Tensor& b) {
  const Tensor zero = equal_mask(b, fill(Shape{}, 0, b.dtype()));
  return multiply(divide(a, add(b, zero)), scale(zero, -1, 1));
}

}  // namespace

Loss loss_from_name(const std::string& name) { return {get_loss(name).name}; }

void check_loss(const Loss& loss) {
  if (std::find(std::begin(kReductions), std::end(kReductions), loss.reduction) ==
      std::end(kReductions))
    throw UserError("[compile] " + loss.name + ": expected reduction sum_over_batch_size, mean, " +
                    "mean_with_sample_weight, sum or none, received '" + loss.reduction + "'");
  if (loss.function) return;
  const std::string known = " " + std::string(get_loss(loss.name).options) + " ";
  for (const auto& [option, value] : loss.options.entries())
    if (known.find(" " + option + " ") == std::string::npos)
      throw UserError("[compile] " + loss.name + ": expected options among" + known + "received '" +
                      option + "'");
}

namespace {

bool is_sparse(const Loss& loss) {
  return !loss.function && (loss.name == "sparse_categorical_crossentropy" ||
                            loss.name == "categorical_generalized_cross_entropy");
}

// The axis of the classes in the shape of one sample.
size_t class_axis(const Loss& loss, const Shape& prediction) {
  const int64_t axis = loss.options.integer("axis", -1);
  return static_cast<size_t>(axis < 0 ? axis + prediction.rank() : axis - 1);
}

}  // namespace

int64_t target_classes(const Loss& loss, const Shape& prediction) {
  if (!is_sparse(loss) || class_axis(loss, prediction) >= prediction.dims().size()) return 0;
  return prediction.dims()[class_axis(loss, prediction)];
}

std::optional<Meta> target_meta(const Loss& loss, const Shape& prediction, Dtype dtype) {
  if (loss.function || loss.name == "ctc") return std::nullopt;
  if (loss.name == "circle") return Meta{Dtype::int32, Shape()};
  if (is_sparse(loss)) {
    std::vector<Dim> dims = prediction.dims();
    const size_t axis = class_axis(loss, prediction);  // none: loss_values refuses it
    if (axis < dims.size()) dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
    return Meta{Dtype::int32, Shape(std::move(dims))};
  }
  return Meta{dtype, prediction};
}

Shape match_trailing_one(const Shape& given, const Shape& wanted) {
  auto is_with_one = [](const Shape& longer, const Shape& shorter) {
    if (longer.rank() != shorter.rank() + 1 || longer.back() != 1) return false;
    for (int axis = 0; axis < shorter.rank(); ++axis)
      if (longer[axis] != shorter[axis]) return false;
    return true;
  };
  return is_with_one(given, wanted) || is_with_one(wanted, given) ? wanted : given;
}

bool needs_factor(const Loss& loss, bool weighted) {
  const bool masked = !loss.function && loss.options.has("ignore_class");
  return (weighted && loss.reduction == "mean_with_sample_weight") ||
         (masked && loss.reduction != "sum" && loss.reduction != "none");
}
bool needs_binary(const Loss& loss) {
  return !loss.function && (loss.name == "hinge" || loss.name == "squared_hinge");
}

namespace {

// As Keras before it calls a function of the user's: one of (n,) and (n, 1) takes the other's
// shape, lest (n,) - (n, 1) become (n, n).
void match_ranks(Tensor& a, Tensor& b) {
  if (a.shape().rank() > b.shape().rank()) return match_ranks(b, a);
  if (b.shape().rank() != a.shape().rank() + 1 || b.shape().back() != 1) return;
  std::vector<Dim> dims = a.shape().dims();
  if (dims.size() == 1) {
    dims.push_back(1);
    a = reshape(a, std::move(dims));
  } else {
    dims = b.shape().dims();
    dims.pop_back();
    b = reshape(b, std::move(dims));
  }
}

// Targets (B, ...) of a loss of ours in the shape that it reads.
Tensor as_target(const Loss& loss, const Tensor& y_true, const Tensor& y_pred) {
  if (!y_true.defined() || y_true.shape().rank() == 0 || y_pred.shape().rank() == 0) return y_true;
  const auto wanted = target_meta(loss, y_pred.shape().without_front(), y_pred.dtype());
  if (!wanted) return y_true;
  const Shape given = y_true.shape().without_front();
  const Shape matched = match_trailing_one(given, wanted->shape);
  return matched == given ? y_true : reshape(y_true, matched.with_front(y_true.shape()[0]).dims());
}

}  // namespace

LossResult loss_values(const Loss& loss, const Tensor& y_true, const Tensor& y_pred,
                       const Tensor& binary) {
  if (!loss.function)
    return get_loss(loss.name).values({loss, as_target(loss, y_true, y_pred), y_pred, binary});
  Tensor target = y_true, prediction = y_pred;
  if (target.defined()) {
    target = cast(target, prediction.dtype());
    match_ranks(target, prediction);
  }
  return {loss.function(target, prediction), {}, {}};
}

Tensor mean_of_positions(const Tensor& x) {
  if (x.shape().rank() <= 1) return x;
  std::vector<int64_t> axes;
  for (int64_t axis = 1; axis < x.shape().rank(); ++axis) axes.push_back(axis);
  return reduce_mean(x, std::move(axes));
}

Tensor times_weights(const Tensor& values, const Tensor& weights) {
  const int rank = values.shape().rank();
  std::vector<Dim> dims = weights.shape().dims();
  while (static_cast<int>(dims.size()) > rank && dims.back() == 1) dims.pop_back();
  while (static_cast<int>(dims.size()) < rank) dims.push_back(1);
  return multiply(values, reshape(cast(weights, values.dtype()), std::move(dims)));
}

void apply_mask(LossResult& result, const Tensor& mask) {
  const Tensor& values = result.values;
  // Over the whole batch already: its mean over the positions that count is itself.
  if (!mask.defined() || values.shape().rank() == 0) return;
  if (mask.shape().rank() > values.shape().rank())
    throw UserError("[fit] loss: expected a value for each masked position " + mask.shape().text() +
                    ", received values " + values.shape().text() +
                    "; drop the mask, or keep positions apart in the loss");
  const Tensor counted = mask.shape() == values.shape()
                             ? cast(mask, values.dtype())
                             : times_weights(fill(values.shape(), 1, values.dtype(), true), mask);
  result.mask = result.mask.defined() ? multiply(result.mask, counted) : counted;
}

Tensor reduce_loss(const Loss& loss, const LossResult& result, const Tensor& sample_weight,
                   const Tensor& factor) {
  Tensor values = result.values;
  // Over the whole batch already, as Dice is: Keras repeats it for each weight.
  const bool whole = values.shape().rank() == 0;
  if (whole && !sample_weight.defined()) return values;
  if (whole)
    values = multiply(values, cast(sample_weight, values.dtype()));
  else if (sample_weight.defined())
    values = times_weights(values, sample_weight);
  if (result.mask.defined()) values = multiply(values, result.mask);
  if (loss.reduction == "none") return values;
  if (loss.reduction == "sum") return sum_of(values);
  if (factor.defined()) return multiply(sum_of(values), factor);
  const bool by_weights = !is_mean(loss) && sample_weight.defined();
  if (by_weights) {
    Tensor counted = cast(sample_weight, values.dtype());
    if (result.mask.defined()) counted = times_weights(result.mask, counted);
    return divide_no_nan(sum_of(values), sum_of(counted));
  }
  if (result.mask.defined()) return divide_no_nan(sum_of(values), sum_of(result.mask));
  const double rows = static_cast<double>(values.shape()[0]);
  return scale(reduce_sum(mean_of_positions(values)), 1.0 / rows);
}

Tensor Loss::operator()(const Tensor& y_true, const Tensor& y_pred,
                        const Tensor& sample_weight) const {
  check_loss(*this);
  return reduce_loss(*this, loss_values(*this, y_true, y_pred), sample_weight);
}

}  // namespace pl
