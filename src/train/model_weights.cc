// Model: its weights, from and to files and tensors.
#include <cstring>

#include "base/error.h"
#include "train/checkpoint.h"
#include "train/model.h"
#include "train/model_state.h"
#include "train/weights.h"

namespace pl {

void Model::save_weights(const std::string& path) {
  state_->require_built("save_weights");
  pl::save_weights(path, state_->weights());
}

void Model::load_weights(const std::string& path) {
  state_->require_built("load_weights");
  if (has_checkpoint(path)) {
    const Checkpoint checkpoint(path);
    checkpoint.verify_bytes();
    check_weights(checkpoint.tensors(), state_->layout(false), true);
    pl::load_weights(checkpoint.tensors(), state_->weights_to_write());
    return;
  }
  const SafetensorsFile file(path);
  check_weights(file, state_->layout(false));
  pl::load_weights(file, state_->weights_to_write());
}

void Model::save_checkpoint(const std::string& folder) {
  state_->require_built("save_checkpoint");
  const Compiled compiled = state_->settings();
  TrainState saved;
  saved.identity = {.model = state_->name,
                    .optimizer = compiled.optimizer ? compiled.optimizer->name() : "",
                    .dtype = std::string(name_of(compiled.dtype))};
  saved.steps_before = state_->steps;
  saved.epochs_before = state_->epochs;
  if (compiled.optimizer) saved.learning_rate = compiled.optimizer->inner().learning_rate;
  write_checkpoint(folder, named_variables(state_->weights()), saved);
}

void Model::load_checkpoint(const std::string& folder) {
  state_->require_built("load_checkpoint");
  const Checkpoint checkpoint(folder);
  const TrainState saved = train_state_from(checkpoint.state(), folder);
  // A model that was never trained has no optimiser state to save.
  const VariableLayout weights = state_->layout(false);
  bool with_slots = false;
  for (const auto& entry : checkpoint.tensors().entries())
    if (!entry.name.starts_with(kCallbackTensors) && !weights.find(entry.name)) with_slots = true;
  if (with_slots) state_->require_compiled("load_checkpoint");
  const VariableLayout layout = with_slots ? state_->layout(true) : weights;
  checkpoint.verify(layout);
  state_->held_session.reset();
  Variables& variables = state_->weights_to_write();
  variables.adopt(layout);
  checkpoint.load(variables);
  state_->last.reset();
  state_->fresh_optimizer = !with_slots;
  state_->steps = saved.steps_before + saved.position.steps;
  state_->epochs = saved.epochs_before + saved.position.epoch - 1;
  if (with_slots) state_->compiled->optimizer->inner().learning_rate = saved.learning_rate;
  if (state_->compiled) state_->compiled->optimizer->inner().fitted = iterations();
}

std::vector<WeightInfo> Model::weights() {
  state_->require_built("weights");
  std::vector<WeightInfo> list;
  for (const NetworkWeight& weight : state_->network.weights())
    list.push_back(
        {weight.path, {state_->settings().dtype.variable, weight.shape}, weight.trainable});
  return list;
}

Tensors Model::get_weights() {
  state_->require_built("get_weights");
  state_->require_weights();
  Tensors values;
  for (size_t i = 0; i < state_->network.weights().size(); ++i) {
    VariableState& variable = *state_->home(i).variable;
    std::memcpy(values.emplace_back(variable.meta).data(), variable.current().data(),
                static_cast<size_t>(variable.meta.bytes()));
  }
  return values;
}

void Model::reset_state(const std::string& layer) {
  state_->require_built("reset_state");
  bool found = false;
  for (size_t i = 0; i < state_->network.weights().size(); ++i) {
    const NetworkWeight& weight = state_->network.weights()[i];
    const bool named =
        layer.empty() || ("/" + weight.path).find("/" + layer + "/") != std::string::npos;
    if (!weight.carried || !named) continue;
    found = true;
    if (!state_->variables) continue;  // they start as zeros
    Variables& variables = *state_->variables;
    state_->weight_handles()[i].state()->writable();
    variables.stepped();
    std::memset(variables.at(i), 0,
                static_cast<size_t>(variables.layout().entries[i].meta.bytes()));
    variables.written();
    state_->weight_handles()[i].state()->wrote();
  }
  if (!found && !layer.empty())
    throw UserError("[reset_state] " + layer + ": expected a stateful layer of " + state_->name +
                    ", received none");
}

void Model::set_weights(const Tensors& values) {
  const std::vector<WeightInfo> list = weights();
  if (values.size() != list.size())
    throw UserError("[set_weights] expected " + std::to_string(list.size()) +
                    " tensors, received " + std::to_string(values.size()));
  for (size_t i = 0; i < list.size(); ++i)
    if (values[i].meta() != list[i].meta)
      throw UserError("[set_weights] " + list[i].path + ": expected " + list[i].meta.text() +
                      ", received " + values[i].meta().text());
  for (const Tensor& value : values) value.data();  // a symbol is refused before anything changes
  Variables& variables = state_->weights_to_write();
  for (size_t i = 0; i < list.size(); ++i)
    std::memcpy(variables.at(i), values[i].data(), static_cast<size_t>(list[i].meta.bytes()));
  variables.written();
}

}  // namespace pl
