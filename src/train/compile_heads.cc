#include "train/compile_heads.h"

#include <algorithm>

#include "base/error.h"

namespace pl {
namespace {

// Puts what was given by name in the order of the outputs; `otherwise` for those that are not
// named.
template <class T>
std::vector<T> by_output(const std::vector<std::pair<std::string, T>>& named,
                         const std::vector<std::string>& outputs, const T& otherwise,
                         const char* what) {
  std::vector<T> list(outputs.size(), otherwise);
  for (const auto& [name, value] : named) {
    const auto at = std::find(outputs.begin(), outputs.end(), name);
    if (at == outputs.end()) {
      std::string known;
      for (const std::string& output : outputs) known += (known.empty() ? "" : ", ") + output;
      throw UserError("[compile] " + std::string(what) + ": expected names of outputs (" + known +
                      "), received '" + name + "'");
    }
    list[static_cast<size_t>(at - outputs.begin())] = value;
  }
  return list;
}

void expect_count(const char* what, size_t outputs, size_t given) {
  if (given != outputs)
    throw UserError("[compile] " + std::string(what) + ": expected one for each of " +
                    std::to_string(outputs) + " outputs, received " + std::to_string(given));
}

std::vector<MetricList> metrics_of(const MetricChoices& choices,
                                   const std::vector<std::string>& outputs, const char* what) {
  if (!choices.in_order.empty()) {
    expect_count(what, outputs.size(), choices.in_order.size());
    return choices.in_order;
  }
  if (choices.only.empty()) return by_output(choices.by_name, outputs, MetricList(), what);
  if (outputs.size() == 1) return {choices.only};
  if (choices.only.size() != outputs.size())
    throw UserError("[compile] " + std::string(what) + ": expected lists by the outputs' names, " +
                    "{{\"" + outputs[0] + "\", {\"accuracy\"}}}, received one list for " +
                    std::to_string(outputs.size()) + " outputs");
  std::vector<MetricList> each;
  for (const Metric& metric : choices.only) each.push_back({metric});
  return each;
}

}  // namespace

std::vector<Head> make_heads(const CompileOptions& options, const std::vector<std::string>& outputs,
                             bool custom) {
  const LossChoices& loss = options.loss;
  std::vector<LossChoice> losses = loss.in_order;
  if (loss.every) losses.assign(outputs.size(), *loss.every);
  if (!loss.by_name.empty()) losses = by_output(loss.by_name, outputs, LossChoice(), "loss");
  if (custom && losses.empty()) losses.resize(outputs.size());
  expect_count("loss", outputs.size(), losses.size());
  std::vector<double> weights = options.loss_weights.in_order;
  if (weights.empty())
    weights = by_output(options.loss_weights.by_name, outputs, 1.0, "loss_weights");
  expect_count("loss_weights", outputs.size(), weights.size());
  const auto metrics = metrics_of(options.metrics, outputs, "metrics");
  const auto weighted = metrics_of(options.weighted_metrics, outputs, "weighted_metrics");
  std::vector<Head> heads;
  bool any = false;
  for (size_t o = 0; o < outputs.size(); ++o) {
    heads.push_back({losses[o].value, weights[o], metrics[o], weighted[o]});
    if (!heads[o].loss) continue;
    any = true;
    check_loss(*heads[o].loss);
    if (heads[o].loss->reduction == "none")
      throw UserError("[compile] " + heads[o].loss->name +
                      ": expected a reduction to one number for training, received 'none'");
  }
  if (!any && !custom)
    throw UserError("[compile] loss: expected one, such as \"sparse_categorical_crossentropy\"");
  return heads;
}

}  // namespace pl
