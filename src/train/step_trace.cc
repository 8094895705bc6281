#include "train/step_trace.h"

#include <cstring>

#include "base/error.h"
#include "model/constraint.h"
#include "model/layer_context.h"
#include "model/regularizer.h"
#include "model/weight_home.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "op/step_params.h"
#include "trace/gradient.h"
#include "train/step_heads.h"
#include "train/step_scope.h"

namespace pl {

const char* name_of(StepKind kind) {
  constexpr const char* names[] = {"train", "evaluate", "predict"};
  return names[static_cast<int>(kind)];
}

namespace {

// Calls body(path, slot) for all slots of the training step, in the order of its variables.
template <class Body>
void each_slot(const Network& network, const Compiled& compiled, const Body& body) {
  const Dtype dtype = compiled.dtype.variable;
  const std::string name = compiled.optimizer->name();
  for (const Slot& slot : compiled.optimizer->shared_slots(dtype))
    body(name + "/" + slot.name, slot);
  for (const NetworkWeight& weight : network.weights()) {
    if (!weight.trainable) continue;
    for (const Slot& slot : compiled.optimizer->slots(weight.path, {dtype, weight.shape}))
      body(name + "/" + weight.path + "/" + slot.name, slot);
  }
}

// The symbols of weights and slots as the optimiser sees them; `slots` are behind the weights.
OptimizerState optimizer_state(const Network& network, const Compiled& compiled,
                               const Tensors& weights, Tensors slots) {
  const Dtype dtype = compiled.dtype.variable;
  auto next = slots.begin();
  auto take = [&](size_t count) {
    const auto first = next;
    next += static_cast<std::ptrdiff_t>(count);
    return Tensors(first, next);
  };
  OptimizerState state{take(compiled.optimizer->shared_slots(dtype).size()), {}};
  for (size_t w = 0; w < weights.size(); ++w) {
    const NetworkWeight& weight = network.weights()[w];
    if (!weight.trainable) continue;
    const size_t count = compiled.optimizer->slots(weight.path, {dtype, weight.shape}).size();
    state.weights.push_back({weight.path, weights[w], take(count)});
  }
  return state;
}

// Gradients of the loss and the optimiser's updates.
void trace_update(Recorder& recorder, const Network& network, const Compiled& compiled,
                  const Signature& signature, OptimizerState state, const Tensor& loss,
                  const Tensor& params) {
  Tensors wrt;
  for (const Trained& entry : state.weights) wrt.push_back(entry.weight);
  const Tensor seed = compiled.optimizer->seed(state, compiled.dtype.variable);
  const Tensors all = gradients(loss, wrt, seed);
  check_gradients(all);
  PathScope path(&recorder, std::string(compiled.optimizer->name()));
  compiled.optimizer->apply(state, all, params, {.accumulate = signature.accumulate});
  size_t next = 0;
  for (const NetworkWeight& weight : network.weights())
    if (weight.trainable) apply_constraint(weight.constraint, state.weights[next++].weight);
}

// Values that layers, losses and metrics meet are inputs, filled before every step. Of variables
// the model's weights are the graph's; others are read anew before every step, and refused in
// layers where training would have to move them.
class StepValues final : public VariableTracer {
 public:
  StepValues(Recorder& recorder, const Network& network, const Tensors& weights, StepLayout& layout)
      : recorder_(recorder), network_(network), weights_(weights), layout_(layout) {
    recorder_.set_capture([this](const Tensor& value) {
      value.data();
      return input(value.buffer().get(), value.meta(), [value] { return value; });
    });
  }
  ~StepValues() { recorder_.set_capture(nullptr); }

  Tensor read(const std::shared_ptr<VariableState>& variable) override {
    for (size_t w = 0; w < weights_.size(); ++w) {
      const auto* home = dynamic_cast<const WeightHome*>(network_.weights()[w].values.get());
      if (home && home->variable == variable) return last_version(weights_[w]);
    }
    if (in_layers && variable->trainable)
      throw UserError("[build] " + untrained_text(variable->name));
    return input(variable.get(), variable->meta, [variable] { return variable->current(); });
  }

  bool in_layers = true;  // and not in losses and metrics

 private:
  template <class F>
  Tensor input(const void* key, const Meta& meta, F value) {
    for (const auto& [known, tensor] : inputs_)
      if (known == key && tensor.meta() == meta) return tensor;
    layout_.host.push_back([value](void* to, const StepParams&) {
      const Tensor now = value();
      std::memcpy(to, now.data(), static_cast<size_t>(now.meta().bytes()));
    });
    inputs_.emplace_back(key, recorder_.input("constant", meta, false));
    return inputs_.back().second;
  }

  Recorder& recorder_;
  const Network& network_;
  const Tensors& weights_;
  StepLayout& layout_;
  std::vector<std::pair<const void*, Tensor>> inputs_;
};

}  // namespace

std::vector<GraphVariable> step_variables(const Network& network, const Compiled& compiled,
                                          bool training) {
  std::vector<GraphVariable> list;
  for (const NetworkWeight& weight : network.weights())
    list.push_back({weight.path, {compiled.dtype.variable, weight.shape}, Category::parameters});
  if (training)
    each_slot(network, compiled, [&](std::string path, const Slot& slot) {
      list.push_back({std::move(path), slot.meta, Category::optimizer});
    });
  return list;
}

std::vector<SlotStart> slot_starts(const Network& network, const Compiled& compiled) {
  std::vector<SlotStart> list;
  each_slot(network, compiled, [&](const std::string& path, const Slot& slot) {
    if (slot.initial != 0) list.push_back({path, slot.initial});
  });
  return list;
}

Graph trace_step(const Network& network, const Compiled& compiled, const Signature& signature,
                 const SampleSpec& sample, StepLayout* layout) {
  const bool predicting = signature.kind == StepKind::predict;
  const std::vector<Head> heads = predicting ? std::vector<Head>() : heads_of(compiled, network);
  check_sample(network, heads, compiled, signature, sample);
  StepLayout own;
  if (!layout) layout = &own;
  *layout = {};
  Recorder recorder;
  RecorderScope scope(recorder);
  const bool training = signature.kind == StepKind::train;
  const bool custom = compiled.step.run != nullptr && !predicting;
  Tensors variables;
  for (const GraphVariable& variable : step_variables(network, compiled, training && !custom))
    variables.push_back(recorder.variable(variable.path, variable.meta, variable.category));
  const auto slots = variables.begin() + static_cast<std::ptrdiff_t>(network.weights().size());
  const Tensors weights(variables.begin(), slots);

  const StepInputs inputs =
      trace_inputs(recorder, network, heads, compiled, signature, sample, *layout);
  const Tensor& params = inputs.params;
  auto keep_resident = [&] {
    if (!sample.resident) return;
    for (const Tensor& input : inputs.samples) {
      const std::string name = recorder.graph().values[index(input.id())].path;
      recorder.keep(input, name);
    }
  };
  if (custom) {
    TracedStep({network, compiled, heads, signature, inputs}, recorder, weights, *layout).run();
    keep_resident();
    Graph graph = recorder.take();
    check_graph(graph);
    return graph;
  }
  NetworkNotes notes;
  StepValues values(recorder, network, weights, *layout);
  const Tensors outputs =
      network.call(inputs.x, weights, training, params, compiled.dtype.compute, &notes);
  if (predicting) {
    for (const Tensor& output : outputs)
      recorder.keep(cast(output, compiled.dtype.variable), "output");
    return recorder.take();
  }

  values.in_layers = false;
  Tensor loss;
  {
    PathScope path(&recorder, "loss");
    std::vector<std::pair<Tensor, std::string>> kept;
    loss = trace_losses(network, heads, outputs, notes.masks, inputs, kept, *layout);
    loss = add_penalties(loss, network, weights, notes.losses);
    recorder.keep(loss, "loss");
    for (const auto& [value, name] : kept) recorder.keep(value, name);
  }
  keep_resident();
  if (training)
    trace_update(recorder, network, compiled, signature,
                 optimizer_state(network, compiled, weights, Tensors(slots, variables.end())), loss,
                 params);
  Graph graph = recorder.take();
  check_graph(graph);
  return graph;
}

}  // namespace pl
