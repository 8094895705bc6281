#include "train/step_scope.h"

#include <algorithm>

#include "base/error.h"
#include "model/constraint.h"
#include "model/regularizer.h"
#include "op/functions.h"

namespace pl {
namespace {

thread_local StepScope* current_step = nullptr;
thread_local int64_t steps_begun = 0;
constexpr int64_t kStepStream = 0x57e9;  // of numbers that a step draws itself

}  // namespace

void check_gradients(const Tensors& gradients) {
  if (gradients.empty()) return;
  for (const Tensor& gradient : gradients)
    if (gradient.defined()) return;
  throw UserError(
      "[fit] loss: expected a loss that depends on the model's trainable weights, received one "
      "with no gradient for any; compute it of y_pred");
}

StepScope::StepScope(const StepSetup& setup)
    : of_(setup), previous_(current_step), serial_(++steps_begun) {
  current_step = this;
}
StepScope::~StepScope() { current_step = previous_; }
StepScope* StepScope::current() { return current_step; }

void StepScope::run() {
  const StepData data{of_.inputs.x, of_.inputs.y, of_.inputs.weights};
  const RandomScope random(of_.inputs.params, kStepStream);
  try {
    const auto& own = of_.compiled.step.run;
    keep(own ? own(data) : standard(data));
    if (recorder()) check_versions(recorder()->graph());
  } catch (const UserError& error) {
    const std::string text = error.what();
    if (text.starts_with("[")) throw;
    throw UserError((training() ? "[train_step] " : "[test_step] ") + text);
  }
}

TensorLogs StepScope::standard(const StepData& data) {
  std::vector<size_t> list;
  std::vector<Variable> trained;
  for (size_t w = 0; w < weights().size(); ++w)
    if (of_.network.weights()[w].trainable) {
      list.push_back(w);
      trained.push_back(weights()[w]);
    }
  std::optional<GradientTape> tape;
  if (training()) tape.emplace();
  const Tensors outputs = forward(data.xs, training());
  const Tensor total = loss(data, outputs);
  TensorLogs logs = metrics(data, outputs);
  logs["loss"] = total;
  if (!training() || trained.empty() || stops(total)) return logs;
  Owner& owner = owner_of(*of_.compiled.optimizer);
  const Tensor seed = of_.compiled.optimizer->seed(state_of(owner, {}), total.dtype());
  const Tensors gradients = tape->gradient(total, trained, {.output_gradient = seed});
  check_gradients(gradients);
  update(owner, list, gradients);
  return logs;
}

Tensors StepScope::forward(const Tensors& x, bool training) {
  const Network& network = of_.network;
  const Dtype compute = of_.compiled.dtype.compute;
  for (size_t i = 0; i < network.input_shapes().size(); ++i)
    if (i >= x.size() || !x[i].defined() ||
        x[i].shape().without_front() != network.input_shapes()[i])
      throw UserError("[call] " + network.calls()[0].path + ": expected samples of shape " +
                      network.input_shapes()[i].text() + ", received " +
                      (i < x.size() && x[i].defined() ? x[i].meta().text() : "none"));
  Tensors in, own;
  for (size_t i = 0; i < x.size(); ++i)
    in.push_back(
        cast(x[i], network.vocabulary(i) > 0 ? Dtype::int32 : network.input_compute(i, compute)));
  // Through the variables: tapes see that they are read.
  for (size_t w = 0; w < weights().size(); ++w)
    own.push_back(network.weights()[w].carried || (training && network.weights()[w].state)
                      ? weight_to_write(w)
                      : weights()[w].value());
  notes_ = {.masks = {}, .losses = {}, .salt = calls_++};
  const Tensors outputs = network.call(in, own, training, of_.inputs.params, compute, &notes_);
  outputs_.clear();
  for (const Tensor& output : outputs) outputs_.push_back(output.identity());
  return outputs;
}

void StepScope::trace_heads(const StepData& data, const Tensors& outputs) {
  std::vector<int64_t> of;
  for (const Tensors* list : {&outputs, &data.ys, &data.sample_weights})
    for (const Tensor& tensor : *list) of.push_back(tensor.defined() ? tensor.identity() : -1);
  if (heads_ && heads_->of == of) return;
  const std::vector<Head>& heads = of_.heads;
  if (std::none_of(heads.begin(), heads.end(), [](const Head& h) { return h.loss; }))
    throw UserError(
        "expected a loss given to compile(), received none; compute it of ops, or compile({.loss "
        "= ...})");
  StepInputs inputs = of_.inputs;
  inputs.y = data.ys;
  inputs.weights = data.sample_weights;
  if (outputs.size() != heads.size() || inputs.y.size() != of_.inputs.y.size() ||
      inputs.weights.size() != of_.inputs.weights.size())
    throw UserError("expected " + std::to_string(heads.size()) + " outputs and " +
                    std::to_string(of_.inputs.y.size()) + " targets for the loss, received " +
                    std::to_string(outputs.size()) + " and " + std::to_string(inputs.y.size()));
  heads_ = Heads{.of = of, .loss = {}, .kept = {}, .layout = {}};
  const PathScope path(recorder(), "loss");
  // A mask belongs to what the model gave, not to what was made of it.
  Tensors masks(outputs.size());
  for (size_t o = 0; o < outputs.size() && o < outputs_.size(); ++o)
    if (outputs[o].identity() == outputs_[o]) masks[o] = notes_.masks[o];
  const Tensor sum =
      trace_losses(of_.network, heads, outputs, masks, inputs, heads_->kept, heads_->layout);
  Tensors own;
  for (const Variable& variable : weights()) own.push_back(variable.value());
  heads_->loss = add_penalties(sum, of_.network, own, notes_.losses);
}

Tensor StepScope::loss(const StepData& data, const Tensors& outputs) {
  trace_heads(data, outputs);
  return heads_->loss;
}

TensorLogs StepScope::metrics(const StepData& data, const Tensors& outputs) {
  trace_heads(data, outputs);
  TensorLogs logs;
  for (const LogTerm& term : heads_->layout.logs)
    logs[term.name] = heads_->kept[term.first - 1].first;
  return logs;
}

Tensors StepScope::losses() {
  Tensors list;
  for (size_t w = 0; w < weights().size(); ++w) {
    const NetworkWeight& weight = of_.network.weights()[w];
    if (!weight.regularizer.empty() && weight.trainable)
      list.push_back(penalty(weight.regularizer, weights()[w].value()));
  }
  list.insert(list.end(), notes_.losses.begin(), notes_.losses.end());
  return list;
}

void StepScope::track(const Tensor& figure, Tensors sums, Metric::Result result) {
  tracked_[figure.identity()] = {std::move(sums), std::move(result)};
}

// The loss first, then compile()'s metrics in their order, then the rest.
void StepScope::keep(TensorLogs logs) {
  for (const auto& [name, value] : logs) check_figure(name, value);
  Tensor loss;
  if (const auto at = logs.find("loss"); at != logs.end()) {
    loss = at->second;
  } else {
    for (const auto& [name, value] : logs)
      if (name.ends_with("_loss") && value.meta().elements() == 1)
        loss = loss.defined() ? add(loss, value) : value;
  }
  if (!loss.defined())
    throw UserError(
        "expected 'loss', or names that end in '_loss', among the results, received none; it is "
        "watched for NaN and shown");
  logs.erase("loss");
  std::vector<LogTerm> terms;
  keep_number("loss", loss);
  keep_tracked("loss", loss, terms);
  if (heads_)
    for (LogTerm term : heads_->layout.logs) {
      const auto at = logs.find(term.name);
      const size_t from = term.first - 1;
      if (at == logs.end() || at->second.identity() != heads_->kept[from].first.identity())
        continue;
      logs.erase(at);
      term.first = kept();
      for (size_t k = 0; k < term.count; ++k) keep_value(heads_->kept[from + k].first, term.name);
      terms.push_back(std::move(term));
    }
  for (const auto& [name, value] : logs) {
    if (keep_tracked(name, value, terms)) continue;
    terms.push_back({.name = name, .first = kept(), .count = 1});
    keep_number(name, value);
  }
  if (layout()) layout()->logs = std::move(terms);
}

bool StepScope::keep_tracked(const std::string& name, const Tensor& figure,
                             std::vector<LogTerm>& terms) {
  const auto own = tracked_.find(figure.identity());
  if (own == tracked_.end()) return false;
  terms.push_back({.name = name,
                   .first = kept(),
                   .count = own->second.sums.size(),
                   .result = own->second.result});
  for (const Tensor& sum : own->second.sums) keep_value(cast(sum, wide(sum.dtype())), name);
  return true;
}

size_t StepScope::keep_number(const std::string& name, const Tensor& value) {
  if (value.meta().elements() != 1)
    throw UserError(name + ": expected one number, the step's mean, received " +
                    value.meta().text() + "; take reduce_mean of it");
  keep_value(cast(value, wide(value.dtype())), name);
  return kept() - 1;
}

size_t StepScope::weight_index(const Variable& variable) const {
  for (size_t w = 0; w < weights().size(); ++w)
    if (weights()[w].state() == variable.state()) return w;
  throw UserError(variable.name() +
                  ": expected a weight of the model, received another variable; make it a weight "
                  "of one of its layers, or train in a pl::function");
}

bool StepScope::trains(const Variable& variable) const {
  for (size_t w = 0; w < weights().size(); ++w)
    if (weights()[w].state() == variable.state()) return of_.network.weights()[w].trainable;
  return variable.trainable();
}

namespace {

// It knows by itself how many of its steps were updates.
bool counts_steps(const Optimizer& optimizer) {
  return optimizer.iterations_slot() >= 0 || optimizer.update_options().gradient_accumulation_steps;
}

}  // namespace

StepScope::Owner& StepScope::owner_of(Optimizer& given) {
  // A model hands out the optimiser inside of one that scales the loss.
  const OptimizerRef& compiled = of_.compiled.optimizer;
  const bool main = &given == compiled.get() || &given == &compiled->inner();
  Optimizer& optimizer = main ? *compiled : given;
  size_t others = 0;
  for (const auto& owner : owners_) {
    if (owner->optimizer == &optimizer) return *owner;
    others += owner->main ? 0 : 1;
  }
  const std::string path =
      std::string(optimizer.name()) + (main ? "" : "_" + std::to_string(others + 1));
  if (!main && optimizer.update_options().gradient_accumulation_steps)
    throw UserError(path +
                    ": expected gradient_accumulation_steps of the optimizer given to compile() "
                    "alone, received it of another");
  owners_.push_back(std::make_unique<Owner>(
      Owner{&optimizer, main, path, optimizer.shared_slots(of_.compiled.dtype.variable)}));
  return *owners_.back();
}

StepParams StepScope::params_for(const Optimizer& optimizer, StepParams step, bool main,
                                 int64_t updates, int64_t nth) {
  const int64_t first = main ? step.updates() - 1 : (step.step - 1) * std::max<int64_t>(updates, 1);
  step.update = first + nth + 1;
  step.learning_rate = optimizer.rate_at(first + nth);
  return step;
}

OptimizerState StepScope::state_of(const Owner& owner, const std::vector<size_t>& weights) {
  OptimizerState state;
  for (const Slot& shared : owner.shared)
    state.shared.push_back(slot(owner.path + "/" + shared.name, shared));
  for (size_t w : weights) {
    const std::string& path = of_.network.weights()[w].path;
    Trained trained{path, weight_to_write(w), {}};
    for (const Slot& own : owner.optimizer->slots(path, trained.weight.meta()))
      trained.slots.push_back(slot(owner.path + "/" + path + "/" + own.name, own));
    state.weights.push_back(std::move(trained));
  }
  return state;
}

void StepScope::update(Owner& owner, const std::vector<size_t>& weights, const Tensors& gradients) {
  OptimizerState state = state_of(owner, weights);
  const PathScope path(recorder(), owner.path);
  const bool first = owner.main && (*owner.updates == 0 || counts_steps(*owner.optimizer));
  owner.optimizer->apply(state, gradients, first ? of_.inputs.params : params_of(owner),
                         {.accumulate = owner.main && of_.signature.accumulate});
  if (counts_steps(*owner.optimizer)) {
    for (size_t w : weights)
      if (!owner.updated.insert(w).second)
        throw UserError(of_.network.weights()[w].path + ": expected one update by " + owner.path +
                        " in a step, as it scales the loss or accumulates gradients, received a "
                        "second one; add the gradients up, or use two optimizers");
  } else {
    ++*owner.updates;
    if (layout()) layout()->updates[owner.path] = *owner.updates;
  }
  for (size_t i = 0; i < weights.size(); ++i)
    state.weights[i].weight =
        apply_constraint(of_.network.weights()[weights[i]].constraint, state.weights[i].weight);
  wrote(owner, weights, state);
}

void StepScope::apply_gradients(Optimizer& optimizer, const GradientsAndVariables& list) {
  if (!training())
    throw UserError("expected gradients to be applied in train_step, received some in test_step");
  std::vector<size_t> weights;
  Tensors gradients;
  for (const auto& [gradient, variable] : list) {
    weights.push_back(weight_index(variable));
    gradients.push_back(gradient);
  }
  update(owner_of(optimizer), weights, gradients);
}

Tensor StepScope::loss_scale(Optimizer& optimizer, Dtype dtype) {
  const Owner& owner = owner_of(optimizer);
  const bool scales = owner.optimizer->iterations_slot() >= 0 ||
                      owner.optimizer->update_options().loss_scale_factor;
  return scales ? owner.optimizer->seed(state_of(owner, {}), dtype) : Tensor();
}

Tensors StepScope::call(const std::shared_ptr<Layer>& layer, const Tensors& given,
                        std::optional<bool> training) {
  const Network& network = of_.network;
  const bool in_training = training.value_or(this->training());
  const Dtype model = of_.compiled.dtype.compute,
              compute = layer->dtype ? layer->dtype->compute : model;
  Tensors in;
  for (const Tensor& tensor : given)
    in.push_back(is_floating(tensor.dtype()) ? cast(tensor, compute) : tensor);
  for (const Network::Place& known : network.places()) {
    if (known.layer != layer) continue;
    const PathScope scope(recorder(), known.path);
    Tensors own, results(1);
    for (int weight : known.weights) {
      const size_t w = index(weight);
      const bool moves = in_training && network.weights()[w].state;
      own.push_back(moves ? weight_to_write(w)
                          : network.cast_weight(w, weights()[w].value(), model));
    }
    const int64_t stream = random_stream(*layer, known.path + "#" + std::to_string(calls_++),
                                         counts_.next(*layer), "@step");
    Tensors more;
    LayerCall made{in, own, in_training, of_.inputs.params, stream};
    made.more = &more;
    made.compute = compute;
    results[0] = run_layer(*layer, made);
    results.insert(results.end(), more.begin(), more.end());
    return results;
  }
  std::vector<Shape> shapes;
  for (const Tensor& tensor : given) shapes.push_back(tensor.shape().without_front());
  throw NewMember(layer, std::move(shapes));
}

}  // namespace pl
