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

// Variables of the training step: a trainable weight with its slots.
struct Trained {
  Tensor weight;
  Tensors slots;
};

}  // namespace

std::vector<GraphVariable> step_variables(const Network& network, const Compiled& compiled,
                                          bool training) {
  std::vector<GraphVariable> list;
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
                 const SampleSpec& sample) {
  check_sample(network, compiled, signature, sample);
  Recorder recorder;
  RecorderScope scope(recorder);
  const bool training = signature.kind == StepKind::train;
  Tensors variables;
  for (const GraphVariable& variable : step_variables(network, compiled, training))
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
