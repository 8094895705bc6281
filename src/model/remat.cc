#include "model/remat.h"

#include <algorithm>

#include "base/error.h"

namespace pl {
namespace {

thread_local std::shared_ptr<const RematRule> current_rule = nullptr;
thread_local bool current_activations = false;

}  // namespace

std::shared_ptr<const RematRule> current_remat_rule() { return current_rule; }

bool RematRule::covers(const std::string& name, const Shape& output) const {
  if (mode == "full") return true;
  if (mode == "larger_than" || mode == "output_size")
    return output.elements() > output_size_threshold;
  return mode == "list_of_layers" &&
         std::find(layer_names.begin(), layer_names.end(), name) != layer_names.end();
}

RematScope::RematScope(RematRule rule) : path_(nullptr, ""), previous_(current_rule), rules_(true) {
  const char* modes[] = {"full", "activations", "larger_than", "output_size", "list_of_layers", ""};
  if (std::find(std::begin(modes), std::end(modes), rule.mode) == std::end(modes))
    throw UserError(
        "[remat] mode: expected full, activations, larger_than, list_of_layers or nothing, "
        "received '" +
        rule.mode + "'");
  if (rule.mode == "list_of_layers" && rule.layer_names.empty())
    throw UserError("[remat] layer_names: expected names with mode list_of_layers, received none");
  if (rule.output_size_threshold < 0)
    throw UserError("[remat] output_size_threshold: expected 0 or more, received " +
                    std::to_string(rule.output_size_threshold));
  current_rule = std::make_shared<RematRule>(std::move(rule));
}

RematScope::~RematScope() {
  if (rules_) current_rule = previous_;
}

RematActivations::RematActivations(const Layer& layer) : previous_(current_activations) {
  current_activations = layer.remat_rule && layer.remat_rule->mode == "activations";
}
RematActivations::~RematActivations() { current_activations = previous_; }
bool RematActivations::wanted() { return current_activations; }

}  // namespace pl
