// A step as a graph; step_scope.h.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "op/functions.h"
#include "op/step_params.h"
#include "train/step_scope.h"

namespace pl {

TracedStep::TracedStep(const StepSetup& setup, Recorder& recorder, Tensors weights,
                       StepLayout& layout)
    : StepScope(setup), recorder_(recorder), first_(std::move(weights)), layout_(layout) {
  recorder_.set_capture([this](const Tensor& value) {
    if (!value.buffer()) value.data();
    return host_input({value.buffer().get(), "constant", value.meta(), [value](void* to) {
                         std::memcpy(to, value.data(), static_cast<size_t>(value.meta().bytes()));
                       }});
  });
}

TracedStep::~TracedStep() { recorder_.set_capture(nullptr); }

Tensor TracedStep::read(const std::shared_ptr<VariableState>& variable) {
  for (size_t w = 0; w < weights().size(); ++w)
    if (weights()[w].state() == variable) return last_version(first_[w]);
  if (!variable->trainable)  // read anew before every step
    return host_input({variable.get(), "constant", variable->meta, [variable](void* to) {
                         std::memcpy(to, variable->current().data(),
                                     static_cast<size_t>(variable->meta.bytes()));
                       }});
  throw UserError(variable->name +
                  ": expected a weight of the model, received another variable; make it a weight "
                  "of one of its layers, or train in a pl::function");
}

Tensor TracedStep::host_input(const HostInput& input) {
  if (input.meta == step_params_meta() && input.name == "step_params") return of_.inputs.params;
  for (const auto& [key, tensor] : host_)
    if (key == input.key && tensor.meta() == input.meta) return tensor;
  layout_.host.push_back([fill = input.fill](void* to, const StepParams&) { fill(to); });
  host_.emplace_back(input.key, recorder_.input(input.name, input.meta, false));
  return host_.back().second;
}

Tensor TracedStep::slot(const std::string& path, const Slot& slot) {
  const auto [at, fresh] = slots_.try_emplace(path);
  if (fresh) {
    at->second = recorder_.variable(path, slot.meta, Category::optimizer);
    if (slot.initial != 0) layout_.slot_starts.push_back({path, slot.initial});
  }
  return last_version(at->second);
}

Tensor TracedStep::weight_to_write(size_t w) { return last_version(first_[w]); }

Tensor TracedStep::params_of(const Owner& owner) {
  layout_.host.push_back([optimizer = owner.optimizer, main = owner.main, of = owner.updates,
                          nth = *owner.updates](void* to, const StepParams& step) {
    const StepParams own = params_for(*optimizer, step, main, *of, nth);
    std::memcpy(to, &own, sizeof own);
  });
  const std::string nth = *owner.updates > 0 ? "_" + std::to_string(*owner.updates) : "";
  return recorder_.input(owner.path + "/step_params" + nth, step_params_meta(), false);
}

// What is kept is a value of its own: no input, no variable, nothing that is kept already.
void TracedStep::keep_value(const Tensor& value, const std::string& name) {
  const Graph& graph = recorder_.graph();
  const Value& known = graph.values[index(value.id())];
  const bool taken =
      std::find(graph.keep.begin(), graph.keep.end(), value.id()) != graph.keep.end();
  recorder_.keep(known.producer < 0 || known.variable >= 0 || taken ? scale(value, 1) : value,
                 name);
}

size_t TracedStep::kept() const { return recorder_.graph().keep.size(); }

void TracedStep::check_figure(const std::string& name, const Tensor& value) const {
  if (value.defined() && value.is_symbol() && value.recorder() == &recorder_ &&
      is_floating(value.dtype()))
    return;
  throw UserError(name + ": expected a figure computed in the step, received " +
                  (value.defined() ? value.meta().text() + " from elsewhere" : "nothing"));
}

}  // namespace pl
