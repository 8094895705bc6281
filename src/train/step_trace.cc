#include "train/step_trace.h"

#include "base/error.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "op/step_params.h"
#include "trace/gradient.h"

namespace pl {

const char* name_of(StepKind kind) {
  constexpr const char* names[] = {"train", "evaluate", "predict"};
  return names[static_cast<int>(kind)];
}

namespace {

void check_sample(const Network& network, const Compiled& compiled, const Signature& signature,
                  const SampleSpec& sample) {
  if (signature.batch <= 0)
    throw UserError("[plan] batch: expected a positive number, received " +
                    std::to_string(signature.batch));
  if (network.input_shapes().size() != 1 || network.output_shapes().size() != 1)
    throw UserError(
        "[fit] expected a network with one input and one output; several are not built yet");
  if (sample.x.shape != network.input_shapes()[0])
    throw UserError("[fit] " + network.calls()[0].layer->name + ": expected samples of shape " +
                    network.input_shapes()[0].text() + ", received " + sample.x.shape.text() +
                    "; set the model's input shape (--input) or reshape the data");
  const bool tokens = network.vocabulary() > 0;
  if (tokens && (is_floating(sample.x.dtype) || sample.x_scale != 1))
    throw UserError("[fit] " + network.calls()[0].layer->name +
                    ": expected tokens, integers below " + std::to_string(network.vocabulary()) +
                    " without x_scale, received " + sample.x.text() + " times " +
                    std::to_string(sample.x_scale));
  if (signature.kind == StepKind::predict) return;
  const Meta target =
      target_meta(compiled.loss, network.output_shapes()[0], compiled.dtype.variable);
  const bool castable = is_floating(target.dtype) && is_floating(sample.y.dtype);
  if (sample.y.shape != target.shape || (sample.y.dtype != target.dtype && !castable))
    throw UserError("[fit] " + compiled.loss.name + ": expected targets of " + target.text() +
                    " per sample, received " + sample.y.text());
}

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
void trace_update(Recorder& recorder, const Compiled& compiled, const Signature& signature,
                  OptimizerState state, const Tensor& loss, const Tensor& params) {
  Tensors wrt;
  for (const Trained& entry : state.weights) wrt.push_back(entry.weight);
  const Tensor seed = compiled.optimizer->seed(state, compiled.dtype.variable);
  const Tensors all = gradients(loss, wrt, seed);
  PathScope path(&recorder, std::string(compiled.optimizer->name()));
  compiled.optimizer->apply(state, all, params, {.accumulate = signature.accumulate});
}

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
                 const SampleSpec& sample) {
  check_sample(network, compiled, signature, sample);
  Recorder recorder;
  RecorderScope scope(recorder);
  const bool training = signature.kind == StepKind::train;
  Tensors variables;
  for (const GraphVariable& variable : step_variables(network, compiled, training))
    variables.push_back(recorder.variable(variable.path, variable.meta, variable.category));
  const auto slots = variables.begin() + static_cast<std::ptrdiff_t>(network.weights().size());
  const Tensors weights(variables.begin(), slots);

  Tensor x =
      recorder.input("x", {sample.x.dtype, sample.x.shape.with_front(signature.batch)}, true);
  Tensor y;
  if (signature.kind != StepKind::predict)
    y = recorder.input("y", {sample.y.dtype, sample.y.shape.with_front(signature.batch)}, true);
  const Tensor raw_x = x, raw_y = y;
  const Tensor params = recorder.input("step_params", step_params_meta(), false);
  {
    PathScope input(&recorder, "input");
    const auto [variable, compute] = compiled.dtype;
    // Scaled before it is rounded; bytes are exact in every dtype.
    const bool scale_first = sample.x_scale != 1 && is_floating(x.dtype());
    if (scale_first) x = scale(cast(x, variable), sample.x_scale);
    x = cast(x, network.vocabulary() > 0 ? Dtype::int32 : compute);
    if (sample.x_scale != 1 && !scale_first) x = scale(x, sample.x_scale);
    if (y.defined() && is_floating(y.dtype())) y = cast(y, variable);
  }
  const Tensor output = network.call({x}, weights, training, params, compiled.dtype.compute)[0];
  if (signature.kind == StepKind::predict) {
    recorder.keep(cast(output, compiled.dtype.variable), "output");
    return recorder.take();
  }

  Tensor loss;
  {
    PathScope path(&recorder, "loss");
    const LossResult result = compute_loss(compiled.loss, y, output);
    loss = scale(reduce_sum(result.per_sample), 1.0 / static_cast<double>(signature.batch));
    recorder.keep(loss, "loss");
    for (const std::string& metric : compiled.metrics)
      recorder.keep(reduce_sum(compute_metric(metric, y, result.scores)), metric);
  }
  if (sample.resident)
    for (const Tensor& input : {raw_x, raw_y})
      recorder.keep(input, input.id() == raw_x.id() ? "x" : "y");
  if (training)
    trace_update(recorder, compiled, signature,
                 optimizer_state(network, compiled, weights, Tensors(slots, variables.end())), loss,
                 params);
  Graph graph = recorder.take();
  check_graph(graph);
  return graph;
}

}  // namespace pl
