#include "train/step_trace.h"

#include "base/error.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "op/step_params.h"
#include "trace/gradient.h"
#include "train/step_heads.h"

namespace pl {

const char* name_of(StepKind kind) {
  constexpr const char* names[] = {"train", "evaluate", "predict"};
  return names[static_cast<int>(kind)];
}

namespace {

// Variables of the training step: a trainable weight with its slots.
struct Trained {
  Tensor weight;
  Tensors slots;
};

}  // namespace

std::vector<Variable> step_variables(const Network& network, const Compiled& compiled,
                                     bool training) {
  std::vector<Variable> list;
  for (const NetworkWeight& weight : network.weights())
    list.push_back({weight.path, {compiled.dtype.variable, weight.shape}, Category::parameters});
  if (!training) return list;
  for (const NetworkWeight& weight : network.weights()) {
    if (!weight.trainable) continue;
    for (const std::string& slot : compiled.optimizer->slots())
      list.push_back({std::string(compiled.optimizer->name()) + "/" + weight.path + "/" + slot,
                      {compiled.dtype.variable, weight.shape},
                      Category::optimizer});
  }
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
  Tensors variables;
  for (const Variable& variable : step_variables(network, compiled, training))
    variables.push_back(recorder.variable(variable.path, variable.meta, variable.category));
  auto next = variables.begin() + static_cast<std::ptrdiff_t>(network.weights().size());
  const Tensors weights(variables.begin(), next);
  std::vector<Trained> trained;
  if (training)
    for (size_t w = 0; w < weights.size(); ++w) {
      if (!network.weights()[w].trainable) continue;
      const auto end = next + static_cast<std::ptrdiff_t>(compiled.optimizer->slots().size());
      trained.push_back({weights[w], Tensors(next, end)});
      next = end;
    }

  const StepInputs inputs =
      trace_inputs(recorder, network, heads, compiled, signature, sample, *layout);
  const Tensor& params = inputs.params;
  const Tensors outputs = network.call(inputs.x, weights, training, params, compiled.dtype.compute);
  if (predicting) {
    for (const Tensor& output : outputs)
      recorder.keep(cast(output, compiled.dtype.variable), "output");
    return recorder.take();
  }

  Tensor loss;
  {
    PathScope path(&recorder, "loss");
    std::vector<std::pair<Tensor, std::string>> kept;
    loss = trace_losses(network, heads, outputs, inputs, kept, *layout);
    recorder.keep(loss, "loss");
    for (const auto& [value, name] : kept) recorder.keep(value, name);
  }
  if (sample.resident)
    for (const Tensor& input : inputs.samples) {
      const std::string name = recorder.graph().values[index(input.id())].path;
      recorder.keep(input, name);
    }
  if (training) {
    Tensors wrt;
    for (const Trained& entry : trained) wrt.push_back(entry.weight);
    const Tensors all = gradients(loss, wrt, fill(Shape{}, 1.0, compiled.dtype.variable));
    for (size_t i = 0; i < trained.size(); ++i) {
      if (!all[i].defined()) continue;
      PathScope path(&recorder, std::string(compiled.optimizer->name()));
      compiled.optimizer->update(trained[i].weight, trained[i].slots, all[i], params);
    }
  }
  Graph graph = recorder.take();
  check_graph(graph);
  return graph;
}

}  // namespace pl
