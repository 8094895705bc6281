#include "train/step_heads.h"

#include <map>

#include "base/error.h"
#include "base/number_text.h"
#include "model/target_shape.h"
#include "op/functions.h"

namespace pl {

std::vector<Head> heads_of(const Compiled& compiled, const Network& network) {
  const size_t outputs = network.output_shapes().size();
  if (!compiled.heads.empty()) {
    if (compiled.heads.size() != outputs)
      throw UserError("[compile] expected a loss for each of " + std::to_string(outputs) +
                      " outputs, received " + std::to_string(compiled.heads.size()));
    return compiled.heads;
  }
  if (outputs > 1 && !compiled.metrics.empty())
    throw UserError("[compile] metrics: expected a list for each output by name, " +
                    std::string("{{\"output\", {\"accuracy\"}}}, received one list for ") +
                    std::to_string(outputs) + " outputs");
  return std::vector<Head>(outputs, Head{.loss = compiled.loss, .metrics = compiled.metrics});
}

namespace {

// The layer that reads an input first, for messages.
std::string reader_of(const Network& network, size_t input) {
  for (const Network::Call& call : network.calls())
    for (int slot : call.in)
      if (slot == static_cast<int>(input)) return call.path;
  return network.input_names()[input];
}

void check_input(const Network& network, size_t i, const SampleSpec& sample) {
  const Shape& wanted = network.input_shapes()[i];
  const Meta& x = sample.x[i];
  if (x.shape != wanted)
    throw UserError("[fit] " + reader_of(network, i) + ": expected samples of shape " +
                    wanted.text() + ", received " + x.shape.text() +
                    "; set the model's input shape (--input) or reshape the data");
  const int64_t vocabulary = network.vocabulary(i);
  const bool scaled = i == 0 && sample.x_scale != 1;
  if (vocabulary > 0 && (is_floating(x.dtype) || scaled))
    throw UserError(
        "[fit] " + reader_of(network, i) + ": expected " +
        (vocabulary == kAnyInteger ? std::string("integers")
                                   : "tokens, integers below " + std::to_string(vocabulary)) +
        ", received " + x.text() +
        (scaled ? " times " + number_text(sample.x_scale) + "; leave x_scale out" : "") +
        (is_floating(x.dtype) ? "; give them as int32" : ""));
}

std::string counted(size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// Class numbers and rows of classes are easily taken for each other.
std::string class_remedy(const Loss& loss, const Shape& prediction, const Shape& y) {
  if (target_classes(loss, prediction) > 0)
    return y == prediction ? "; categorical_crossentropy takes rows with a number for each class"
                           : "";
  if (!loss.name.starts_with("categorical_crossentropy") || prediction.rank() == 0) return "";
  std::vector<Dim> dims = prediction.dims();
  dims.pop_back();
  const Shape numbers(std::move(dims));
  return match_trailing_one(y, numbers) == numbers
             ? "; sparse_categorical_crossentropy takes class numbers"
             : "";
}

void check_target(const Network& network, size_t output, const Head& head, const Meta& y,
                  Dtype dtype) {
  if (!head.loss) return;
  const auto target = target_meta(*head.loss, network.output_shapes()[output], dtype);
  if (!target) return;
  // Labels in floating point, as NumPy reads them from a table, are cast as Keras casts them.
  const bool castable =
      y.dtype != Dtype::boolean && (is_floating(target->dtype) || is_floating(y.dtype));
  if (match_trailing_one(y.shape, target->shape) == target->shape &&
      (y.dtype == target->dtype || castable))
    return;
  const std::string of =
      network.output_shapes().size() > 1 ? " for output " + network.output_names()[output] : "";
  throw UserError("[fit] " + head.loss->name + ": expected targets of " + target->text() +
                  " per sample" + of + ", received " + y.text() +
                  class_remedy(*head.loss, network.output_shapes()[output], y.shape));
}

}  // namespace

namespace {

void check_policies(const Network& network, const Compiled& compiled) {
  for (const Network::Call& call : network.calls())
    if (const auto& own = call.layer->dtype; own && own->variable != compiled.dtype.variable)
      throw UserError("[compile] " + call.path + " dtype: expected a policy with " +
                      std::string(name_of(compiled.dtype.variable)) +
                      " variables, as the model's, received " + std::string(name_of(*own)));
}

}  // namespace

void check_sample(const Network& network, const std::vector<Head>& heads, const Compiled& compiled,
                  const Signature& signature, const SampleSpec& sample) {
  if (signature.batch <= 0)
    throw UserError("[plan] batch: expected a positive number, received " +
                    std::to_string(signature.batch));
  const size_t inputs = network.input_shapes().size();
  if (sample.x.size() != inputs)
    throw UserError("[fit] expected samples for " + counted(inputs, "input") + ", received " +
                    std::to_string(sample.x.size()));
  for (size_t i = 0; i < inputs; ++i) check_input(network, i, sample);
  check_policies(network, compiled);
  if (signature.kind == StepKind::predict) return;
  size_t targets = 0;
  bool any_loss = false;
  for (size_t o = 0; o < heads.size(); ++o) {
    if (!heads[o].has_target()) continue;
    any_loss = any_loss || heads[o].loss;
    if (targets < sample.y.size())
      check_target(network, o, heads[o], sample.y[targets], compiled.dtype.variable);
    ++targets;
  }
  if (compiled.step.run && !any_loss) return;  // the step makes of its targets what it likes
  if (!any_loss) throw UserError("[fit] expected a loss for at least one output, received none");
  if (targets != sample.y.size())
    throw UserError("[fit] expected targets for " + counted(targets, "output") + ", received " +
                    std::to_string(sample.y.size()));
  if (sample.weights.size() > 1 && sample.weights.size() != targets)
    throw UserError("[fit] sample_weight: expected one, or one for each of " +
                    counted(targets, "output") + ", received " +
                    std::to_string(sample.weights.size()));
}

namespace {

Tensor cast_input(const Tensor& raw, double factor, bool tokens, Policy dtype) {
  if (tokens) return cast(raw, Dtype::int32);
  // Scaled before it is rounded; bytes are exact in every dtype.
  const bool scale_first = factor != 1 && is_floating(raw.dtype());
  Tensor x = scale_first ? scale(cast(raw, dtype.variable), factor) : raw;
  x = cast(x, dtype.compute);
  return factor != 1 && !scale_first ? scale(x, factor) : x;
}

}  // namespace

StepInputs trace_inputs(Recorder& recorder, const Network& network, const std::vector<Head>& heads,
                        const Compiled& compiled, const Signature& signature,
                        const SampleSpec& sample, StepLayout& layout) {
  Tensors samples;
  auto add = [&](const std::string& name, const Meta& meta) {
    samples.push_back(
        recorder.input(name, {meta.dtype, meta.shape.with_front(signature.batch)}, true));
  };
  const bool single = sample.x.size() == 1;
  for (size_t i = 0; i < sample.x.size(); ++i)
    add(single ? "x" : network.input_names()[i], sample.x[i]);
  if (signature.kind != StepKind::predict) {
    for (size_t t = 0; t < sample.y.size(); ++t)
      add(sample.y.size() == 1 ? "y" : "y" + std::to_string(t), sample.y[t]);
    for (const Meta& weight : sample.weights) add("sample_weight", weight);
    layout.facts = facts_of(heads, sample);
    for (const HostFact& fact : layout.facts) {
      const bool factor = fact.kind == HostFact::Kind::factor;
      samples.push_back(recorder.input(factor ? "loss_factor" : "binary_targets",
                                       {compiled.dtype.variable, Shape{}}, false));
    }
  }
  const Tensor params = recorder.input("step_params", step_params_meta(), false);
  const PathScope path(&recorder, "input");
  return arrange_inputs(network, compiled, sample, layout.facts, std::move(samples), params);
}

std::vector<HostFact> facts_of(const std::vector<Head>& heads, const SampleSpec& sample) {
  std::vector<HostFact> facts;
  const size_t first_y = sample.x.size(), first_weight = first_y + sample.y.size();
  size_t t = 0;
  for (const Head& head : heads) {
    if (!head.has_target()) continue;
    const size_t target = t++;
    if (!head.loss) continue;
    HostFact fact{.kind = HostFact::Kind::factor, .loss = *head.loss, .target = first_y + target};
    if (!sample.weights.empty())
      fact.weight = first_weight + (sample.weights.size() > 1 ? target : 0);
    if (needs_factor(*head.loss, !sample.weights.empty())) facts.push_back(fact);
    fact.kind = HostFact::Kind::binary;
    if (needs_binary(*head.loss)) facts.push_back(fact);
  }
  return facts;
}

StepInputs arrange_inputs(const Network& network, const Compiled& compiled,
                          const SampleSpec& sample, const std::vector<HostFact>& facts,
                          Tensors samples, const Tensor& params) {
  StepInputs result;
  result.params = params;
  const Dtype variable = compiled.dtype.variable;
  const size_t first_y = sample.x.size(), first_weight = first_y + sample.y.size();
  for (size_t i = 0; i < first_y; ++i)
    result.x.push_back(cast_input(samples[i], sample.x_scale, network.vocabulary(i) > 0,
                                  {variable, network.input_compute(i, compiled.dtype.compute)}));
  if (samples.size() > first_y) {  // not of a prediction
    Tensors weights;
    for (size_t t = 0; t < sample.y.size(); ++t) {
      const Tensor& y = samples[first_y + t];
      result.y.push_back(is_floating(y.dtype()) ? cast(y, variable) : y);
    }
    for (size_t w = 0; w < sample.weights.size(); ++w)
      weights.push_back(cast(samples[first_weight + w], variable));
    for (size_t t = 0; t < sample.y.size() && !weights.empty(); ++t)
      result.weights.push_back(weights[weights.size() > 1 ? t : 0]);
    result.facts.resize(sample.y.size());
    const size_t first_fact = first_weight + sample.weights.size();
    for (size_t f = 0; f < facts.size(); ++f) {
      BatchFacts& of = result.facts[facts[f].target - first_y];
      (facts[f].kind == HostFact::Kind::factor ? of.factor : of.binary) = samples[first_fact + f];
    }
  }
  result.samples = std::move(samples);
  return result;
}

namespace {

// Keras's names of metrics in logs: with the output's where there are several, and counted when
// used twice; weighted ones that clash say so.
class LogNames {
 public:
  std::string plain(const std::string& name) {
    const int before = used_[name]++;
    return before == 0 ? name : name + "_" + std::to_string(before);
  }
  std::string weighted(const std::string& prefix, const std::string& name) {
    return plain(used_[prefix + name] == 0 ? prefix + name : prefix + "weighted_" + name);
  }

 private:
  std::map<std::string, int> used_;
};

// Keras's rule for means of metrics: a mask is a weight, or a factor of one.
Tensor masked_weight(const Tensor& weight, const Tensor& mask, Dtype dtype) {
  if (!mask.defined()) return weight;
  const Tensor counts = cast(mask, weight.defined() ? weight.dtype() : dtype);
  return weight.defined() ? times_weights(counts, weight) : counts;
}

}  // namespace

Tensor trace_losses(const Network& network, const std::vector<Head>& heads, const Tensors& outputs,
                    const Tensors& masks, const StepInputs& inputs,
                    std::vector<std::pair<Tensor, std::string>>& kept, StepLayout& layout) {
  size_t losses = 0;
  for (const Head& head : heads) losses += head.loss ? 1 : 0;
  const bool several = heads.size() > 1;
  LogNames names;
  std::vector<LogTerm> metrics, weighted;
  std::vector<Tensors> metric_sums, weighted_sums;
  Tensor total;
  auto keep = [&](LogTerm term, const Tensors& values) {
    term.first = kept.size() + 1;  // behind the loss
    term.count = values.size();
    for (const Tensor& value : values) kept.emplace_back(value, term.name);
    layout.logs.push_back(std::move(term));
  };
  size_t target = 0;
  for (size_t o = 0; o < heads.size(); ++o) {
    const Head& head = heads[o];
    if (!head.has_target()) continue;
    const size_t t = target++;
    const std::string output = network.output_names()[o], prefix = several ? output + "_" : "";
    PathScope path(several ? outputs[o].recorder() : nullptr, output);
    const Tensor weight = inputs.weights.empty() ? Tensor() : inputs.weights[t];
    const Tensor& y = inputs.y[t];
    LossResult result;
    if (head.loss) {
      result = loss_values(*head.loss, y, outputs[o], inputs.facts[t].binary);
      apply_mask(result, masks[o]);
      // The host does not know of masks.
      const Tensor factor = masks[o].defined() ? Tensor() : inputs.facts[t].factor;
      const Tensor loss = reduce_loss(*head.loss, result, weight, factor);
      if (losses > 1) keep({.name = output + "_loss"}, {loss});
      const Tensor term = head.weight != 1 ? scale(loss, head.weight) : loss;
      total = total.defined() ? add(total, term) : term;
    }
    auto sums = [&](const Metric& metric, const Tensor& by) {
      const bool scores = result.scores.defined() && (metric.ranks || !head.loss->from_logits);
      const Tensor p = scores ? result.scores : cast(outputs[o], wide(outputs[o].dtype()));
      return metric.sums(y, p, metric.masked ? masked_weight(by, masks[o], p.dtype()) : by);
    };
    for (const Metric& metric : head.metrics) {
      metrics.push_back({.name = names.plain(prefix + metric.name), .result = metric.result});
      metric_sums.push_back(sums(metric, {}));
    }
    for (const Metric& metric : head.weighted_metrics) {
      weighted.push_back({.name = prefix + "\n" + metric.name, .result = metric.result});
      weighted_sums.push_back(sums(metric, weight));
    }
  }
  for (size_t m = 0; m < metrics.size(); ++m) keep(metrics[m], metric_sums[m]);
  for (size_t m = 0; m < weighted.size(); ++m) {
    const size_t cut = weighted[m].name.find('\n');
    weighted[m].name =
        names.weighted(weighted[m].name.substr(0, cut), weighted[m].name.substr(cut + 1));
    keep(weighted[m], weighted_sums[m]);
  }
  return total;
}

}  // namespace pl
