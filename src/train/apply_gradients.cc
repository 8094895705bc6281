// Optimisers on Variables: eager code and pl::function. Slots are Variables of the optimiser's own.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "op/pointwise.h"
#include "op/runtime.h"
#include "op/step_params.h"
#include "train/function_trace.h"
#include "train/optimizer.h"

namespace pl {

GradientsAndVariables zip(const Tensors& gradients, const std::vector<Variable>& variables) {
  GradientsAndVariables list;
  for (size_t i = 0; i < variables.size() && i < gradients.size(); ++i)
    list.emplace_back(gradients[i], variables[i]);
  return list;
}

struct SlotVariables {
  int64_t iterations = 0;
  std::vector<Variable> shared;
  struct Of {
    Variable weight;  // keeps the address from being another's
    std::vector<Variable> slots;
  };
  std::map<const VariableState*, Of> of;
};

namespace {

// Made by hand: in a traced function an op would become part of the trace. It lies where its weight
// does.
Variable make_slot(const Slot& slot, const std::string& path,
                   const std::shared_ptr<DeviceSpace>& space) {
  const Tensor start(slot.meta);
  const int64_t count = slot.meta.elements();
  if (slot.meta.dtype == Dtype::float64)
    std::fill_n(start.data_as<double>(), count, slot.initial);
  else if (slot.meta.dtype == Dtype::float32)
    std::fill_n(start.data_as<float>(), count, static_cast<float>(slot.initial));
  else
    std::memset(start.data(), 0, static_cast<size_t>(slot.meta.bytes()));
  const DeviceScope scope(space);
  Variable variable(start, {.name = path + "/" + slot.name, .trainable = false});
  variable.state()->category = Category::optimizer;
  return variable;
}

// Variables as an update writes them: in place, or as the trace's.
class Writing {
 public:
  Tensor operator()(const Variable& variable) {
    if (VariableTracer* tracer = VariableTracer::current()) return tracer->read(variable.state());
    written_.push_back(variable);
    return variable.state()->writable();
  }
  Tensors operator()(const std::vector<Variable>& list) {
    Tensors tensors;
    for (const Variable& variable : list) tensors.push_back((*this)(variable));
    return tensors;
  }
  // What an update did not write in place is copied there.
  void finish(const OptimizerState& state) {
    Tensors next = state.shared;
    for (const Trained& trained : state.weights) {
      next.push_back(trained.weight);
      next.insert(next.end(), trained.slots.begin(), trained.slots.end());
    }
    for (size_t i = 0; i < next.size(); ++i) {
      VariableState& variable = *written_[i].state();
      const Tensor& place = variable.current();
      if (next[i].place() != place.place()) copy_value(place, next[i]);
      variable.wrote();
    }
  }

 private:
  std::vector<Variable> written_;  // as finish() finds their next versions
};

void check_gradients(const GradientsAndVariables& list) {
  if (list.empty()) throw UserError("[apply_gradients] expected gradients, received none");
  std::set<const VariableState*> seen;
  bool any = false;
  for (const auto& [gradient, variable] : list) {
    any = any || gradient.defined();
    if (gradient.defined() && gradient.meta() != variable.meta())
      throw UserError("[apply_gradients] " + variable.name() + ": expected a gradient of " +
                      variable.meta().text() + ", received " + gradient.meta().text());
    if (!seen.insert(variable.state().get()).second)
      throw UserError("[apply_gradients] " + variable.name() +
                      ": expected each variable once, received it twice; add its gradients first");
  }
  if (!any)
    throw UserError("[apply_gradients] " + list.front().second.name() +
                    ": expected a gradient of at least one variable, received none; the loss must "
                    "be made of the model's outputs, inside the tape");
}

}  // namespace

int64_t Optimizer::steps_done() const {
  if (!variables_) return 0;
  const int slot = iterations_slot();
  if (slot < 0) return variables_->iterations;
  const Tensor& counted = variables_->shared[static_cast<size_t>(slot)].state()->current();
  return static_cast<int64_t>(*counted.data_as<double>());
}

int64_t Optimizer::iterations() const {
  return fitted + steps_done() / update_options().gradient_accumulation_steps.value_or(1);
}

Tensor Optimizer::scale_loss(const Tensor& loss) {
  if (StepHooks* step = StepHooks::current()) {
    const Tensor scale = step->loss_scale(*this, loss.dtype());
    return scale.defined() ? multiply(loss, scale) : loss;
  }
  if (iterations_slot() < 0 && !update_options().loss_scale_factor) return loss;
  OptimizerState state;
  if (iterations_slot() >= 0) {
    make_shared_slots(loss.dtype(), loss.buffer() ? loss.buffer()->space() : nullptr);
    for (const Variable& shared : variables_->shared) state.shared.push_back(shared.value());
  }
  return multiply(loss, seed(state, loss.dtype()));
}

void Optimizer::make_shared_slots(Dtype dtype, const std::shared_ptr<DeviceSpace>& space) {
  if (variables_) return;
  variables_ = std::make_shared<SlotVariables>();
  for (const Slot& slot : shared_slots(dtype))
    variables_->shared.push_back(make_slot(slot, name(), space));
}

void Optimizer::apply_gradients(const GradientsAndVariables& list) {
  check_gradients(list);
  if (StepHooks* step = StepHooks::current()) return step->apply_gradients(*this, list);
  auto space_of = [](const Variable& variable) -> const std::shared_ptr<DeviceSpace>& {
    const VariableState& state = *variable.state();
    return state.place ? state.space : state.value.buffer()->space();
  };
  make_shared_slots(list.front().second.dtype(), space_of(list.front().second));
  SlotVariables& own = *variables_;
  Writing writing;
  OptimizerState state;
  Tensors gradients;
  state.shared = writing(own.shared);
  for (const auto& [gradient, variable] : list) {
    auto [at, fresh] = own.of.try_emplace(variable.state().get());
    if (fresh) {
      at->second.weight = variable;
      for (const Slot& slot : slots(variable.name(), variable.meta()))
        at->second.slots.push_back(
            make_slot(slot, std::string(name()) + "/" + variable.name(), space_of(variable)));
    }
    state.weights.push_back({variable.name(), writing(variable), writing(at->second.slots)});
    gradients.push_back(gradient);
  }
  const int64_t every = update_options().gradient_accumulation_steps.value_or(1);
  auto fill = [this, every](void* to) {
    const int64_t done = steps_done();
    StepParams params;
    params.step = variables_->iterations + 1;
    params.update = done / every + 1;
    params.learning_rate = inner().rate_at(done);
    std::memcpy(to, &params, sizeof params);
  };
  if (FunctionTrace* trace = FunctionTrace::current()) {
    if (every > 1)
      throw UserError("[apply_gradients] " + std::string(name()) +
                      ": expected no gradient_accumulation_steps in a pl::function, which is one "
                      "trace for all steps, received " +
                      std::to_string(every) + "; apply them on values, or train with fit()");
    auto after = [variables = variables_] { ++variables->iterations; };
    apply(state, gradients,
          trace->host_input(
              {this, std::string(name()) + "/step_params", step_params_meta(), fill, after}));
    return;
  }
  const Tensor params(step_params_meta());
  fill(params.data());
  apply(state, gradients, params, {.accumulate = (steps_done() + 1) % every != 0});
  writing.finish(state);
  ++own.iterations;
}

}  // namespace pl
