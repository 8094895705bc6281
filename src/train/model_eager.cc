// Model on values, and on symbols in pl::function: calls, and its weights as Variables.
#include <cstring>

#include "base/error.h"
#include "model/layer_context.h"
#include "op/cast.h"
#include "train/function_trace.h"
#include "train/model.h"
#include "train/model_state.h"

namespace pl {
namespace {

// For random layers: another step in every call.
Tensor step_params(ModelState& state, Dim rows) {
  auto fill = [&state, rows](void* to) {
    StepParams params;
    params.step = ++state.eager_calls;
    params.rows = rows;
    std::memcpy(to, &params, sizeof params);
  };
  if (FunctionTrace* trace = FunctionTrace::current())
    return trace->host_input({&state, "step_params", step_params_meta(), fill});
  const Tensor params(step_params_meta());
  fill(params.data());
  return params;
}

// A weight as an op reads it; one that its layer moves, as an op writes it.
Tensor weight_of(const Variable& variable, bool written) {
  if (written && !VariableTracer::current()) return variable.state()->writable();
  return variable.value();
}

}  // namespace

Tensor Model::call(const Tensor&, bool) {
  throw UserError("[build] " + state_->name +
                  ": expected layers, or a class derived from Model that overrides call()");
}

void Model::bind() {
  state_->self = this;
  ModelState* state = state_.get();
  state_->subclass = [state] {
    return LayerRef(std::make_shared<FunctionLayer>("Model", [state] {
      return [state](const Tensor& x, bool training) { return state->self->call(x, training); };
    }));
  };
}

std::vector<Variable> Model::variables() {
  state_->require_built("variables");
  const Variables& values = state_->weights();
  if (state_->handles.empty())
    for (size_t i = 0; i < state_->network.weights().size(); ++i) {
      const NetworkWeight& weight = state_->network.weights()[i];
      auto variable = std::make_shared<VariableState>();
      variable->name = weight.path;
      variable->meta = values.layout().entries[i].meta;
      variable->trainable = weight.trainable;
      variable->keeper = state_->variables;
      // The same object for as long as anybody has a handle; its memory may move.
      variable->place = [all = state_->variables.get(), i] { return all->at(i); };
      state_->handles.emplace_back(std::move(variable));
    }
  return state_->handles;
}

std::vector<Variable> Model::trainable_variables() {
  std::vector<Variable> list;
  for (const Variable& variable : variables())
    if (variable.trainable()) list.push_back(variable);
  return list;
}

Tensor Model::operator()(const Tensor& x, bool training) {
  if (!x.defined() || x.shape().rank() < 1)
    throw UserError("[call] " + state_->name + ": expected samples as rows, received " +
                    (x.defined() ? x.meta().text() : "nothing"));
  if (!state_->network.built()) state_->build(x.shape().without_front());
  const Network& network = state_->network;
  if (network.input_shapes().size() != 1 || x.shape().without_front() != network.input_shapes()[0])
    throw UserError("[call] " + network.calls()[0].path + ": expected samples of shape " +
                    network.input_shapes()[0].text() + ", received " + x.meta().text());
  const Dtype compute = state_->settings().dtype.compute;
  const std::vector<Variable> all = variables();
  Tensors weights;
  auto moves = [&](size_t i) { return training && network.weights()[i].state; };
  for (size_t i = 0; i < all.size(); ++i) weights.push_back(weight_of(all[i], moves(i)));
  const Tensor in = cast(x, network.vocabulary() > 0 ? Dtype::int32 : compute);
  const Tensor y =
      network.call({in}, weights, training, step_params(*state_, x.shape()[0]), compute)[0];
  for (size_t i = 0; i < all.size() && !VariableTracer::current(); ++i)
    if (moves(i)) all[i].state()->wrote();
  return y;
}

void ModelState::detach_readers() {
  for (const Variable& variable : handles) {
    variable.state()->writable();
    variable.state()->wrote();
  }
}

}  // namespace pl
