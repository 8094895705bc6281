#include "train/eager_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "op/cast.h"
#include "op/observer.h"
#include "train/step_scope.h"

namespace pl {
namespace {

// A variable at its place among the session's.
Variable variable_at(const std::shared_ptr<Variables>& variables, size_t i, bool trainable,
                     const std::shared_ptr<DeviceSpace>& space) {
  auto state = std::make_shared<VariableState>();
  state->name = variables->layout().entries[i].path;
  state->meta = variables->layout().entries[i].meta;
  state->trainable = trainable;
  state->keeper = variables;
  state->place = [all = variables.get(), i]() -> void* {
    return all->on_host() ? all->at(i) : all->place(i);
  };
  state->space = space;
  return Variable(std::move(state));
}

double number(const Tensor& scalar) {
  return scalar.dtype() == Dtype::float64 ? *scalar.data_as<double>()
                                          : static_cast<double>(*scalar.data_as<float>());
}

// What a softmax or sigmoid was made of, until the next one: losses take that, as in a trace.
class LastActivations final : public OpObserver {
 public:
  LastActivations() { begin_observing(*this); }
  ~LastActivations() { end_observing(*this); }
  LastActivations(const LastActivations&) = delete;
  LastActivations& operator=(const LastActivations&) = delete;

  Tensor operand_of(const Tensor& value, std::string_view op) const override {
    for (const Seen& seen : last_)
      if (seen.out == value.identity() && seen.op == op) return seen.in;
    return {};
  }

 private:
  struct Seen {
    std::string_view op;
    int64_t out = -1;
    Tensor in = {};
  };
  void on_apply(const Op& op, const Tensors& in, const Attrs&, const Tensors& out) override {
    const std::string_view name = op.name;
    if (out[0].is_symbol() || (name != "softmax" && name != "sigmoid")) return;
    last_[name == "softmax" ? 0 : 1] = {name, out[0].identity(), in[0]};
  }
  void on_read(const void*, const Tensor&, bool) override {}
  bool recording() const override { return false; }
  std::array<Seen, 2> last_;
};

class EagerStep final : public StepScope {
 public:
  EagerStep(const StepSetup& setup, const std::shared_ptr<Variables>& variables,
            const std::shared_ptr<DeviceSpace>& space, const StepLayout& traced, Tensors& kept)
      : StepScope(setup), variables_(variables), space_(space), traced_(traced), kept_(kept) {}
  bool stopped() const { return stopped_; }

  Tensors forward(const Tensors& x, bool training) override {
    const Tensors outputs = StepScope::forward(x, training);
    for (const Variable& moved : moved_) moved.state()->wrote();
    moved_.clear();
    return outputs;
  }

 private:
  Tensor slot(const std::string& path, const Slot&) override {
    const auto [at, fresh] = slots_.try_emplace(path);
    const auto& entries = variables_->layout().entries;
    for (size_t i = 0; i < entries.size() && fresh; ++i)
      if (entries[i].path == path) at->second = variable_at(variables_, i, false, space_);
    check(at->second.defined(), "a slot of the step is among the variables");
    return at->second.state()->writable();
  }
  Tensor weight_to_write(size_t w) override {
    if (of_.network.weights()[w].state) moved_.push_back(weights()[w]);
    return weights()[w].state()->writable();
  }
  void wrote(const Owner& owner, const std::vector<size_t>& list,
             const OptimizerState& state) override {
    auto store = [](const Variable& variable, const Tensor& next) {
      VariableState& to = *variable.state();
      const Tensor& place = to.current();
      if (next.place() != place.place()) copy_value(place, next);
      to.wrote();
    };
    for (size_t i = 0; i < owner.shared.size(); ++i)
      store(slots_.at(owner.path + "/" + owner.shared[i].name), state.shared[i]);
    for (size_t i = 0; i < list.size(); ++i) {
      const Trained& trained = state.weights[i];
      store(weights()[list[i]], trained.weight);
      const auto slots = owner.optimizer->slots(trained.path, trained.weight.meta());
      for (size_t s = 0; s < slots.size(); ++s)
        store(slots_.at(owner.path + "/" + trained.path + "/" + slots[s].name), trained.slots[s]);
    }
  }
  Tensor params_of(const Owner& owner) override {
    StepParams step;
    std::memcpy(&step, of_.inputs.params.data(), sizeof step);
    step = params_for(*owner.optimizer, step, owner.main, traced_.updates_of(owner.path),
                      *owner.updates);
    const Tensor params(step_params_meta());
    std::memcpy(params.data(), &step, sizeof step);
    return params;
  }
  void keep_value(const Tensor& value, const std::string& name) override {
    if (done_ == kept_.size() || kept_[done_].meta() != value.meta())
      throw UserError(name + ": expected the same figures in every step, received another one");
    std::memcpy(kept_[done_++].data(), value.data(), static_cast<size_t>(value.meta().bytes()));
  }
  size_t kept() const override { return done_; }
  bool stops(const Tensor& loss) override {
    stopped_ = !std::isfinite(number(loss));
    return stopped_;
  }
  void check_figure(const std::string& name, const Tensor& value) const override {
    if (!value.defined() || !is_floating(value.dtype()))
      throw UserError(name + ": expected a figure computed in the step, received " +
                      (value.defined() ? value.meta().text() : "nothing"));
  }

  const std::shared_ptr<Variables>& variables_;
  const std::shared_ptr<DeviceSpace>& space_;
  const StepLayout& traced_;
  Tensors& kept_;
  size_t done_ = 0;
  bool stopped_ = false;
  std::vector<Variable> moved_;
  std::map<std::string, Variable> slots_;
  LastActivations activations_;
};

}  // namespace

EagerSteps::EagerSteps(const SessionPlan& plan, std::shared_ptr<Variables> variables)
    : signatures_(plan.signatures),
      layout_(plan.step),
      setup_(plan.eager),
      variables_(std::move(variables)) {
  // Inputs and figures first: they live as long as the session.
  const size_t signatures = plan.prepared.size();
  for (size_t s = 0; s < signatures; ++s) {
    const Graph& graph = plan.prepared[s].graph;
    const size_t inputs = graph.inputs.size() - plan.host[s].size();
    for (size_t i = 0; i < inputs; ++i) {
      const Bytes bytes = graph.values[index(graph.inputs[i])].meta.bytes();
      if (i == bytes_.size()) bytes_.push_back(0);
      bytes_[i] = std::max(bytes_[i], bytes);
    }
  }
  const std::string limit = setup_->limit ? std::to_string(*setup_->limit) : "";
  runtime_ = std::make_unique<Runtime>(RuntimeOptions{.memory = setup_->space ? "" : limit,
                                                      .threads = setup_->threads,
                                                      .device_memory = setup_->space ? limit : ""});
  if (setup_->space) runtime_->device(setup_->space, setup_->chooses);
  for (Bytes bytes : bytes_) places_.push_back(std::make_shared<Buffer>(bytes));
  for (size_t s = 0; s < signatures; ++s) {
    const Graph& graph = plan.prepared[s].graph;
    Tensors& own = inputs_.emplace_back();
    for (size_t i = 0; i + plan.host[s].size() < graph.inputs.size(); ++i) {
      const Meta& meta = graph.values[index(graph.inputs[i])].meta;
      own.emplace_back(meta,
                       std::make_shared<Buffer>(places_[i]->data(), meta.bytes(), places_[i]));
    }
    Tensors& kept = kept_.emplace_back();
    for (ValueId id : graph.keep) kept.emplace_back(graph.values[index(id)].meta);
  }
  const EagerSetup& setup = *setup_;
  if (!setup.compiled.step.variables.empty()) {
    weights_ = setup.compiled.step.variables;
    return;
  }
  for (size_t w = 0; w < setup.network.weights().size(); ++w)
    weights_.push_back(
        variable_at(variables_, w, setup.network.weights()[w].trainable, setup.space));
}

Tensor EagerSteps::on_device(const Tensor& input) const {
  if (!setup_->space) return input;
  const Tensor there = value_on(setup_->space, input.meta());
  copy_value(there, input);
  return there;
}

bool EagerSteps::run(size_t s) {
  const EagerSetup& setup = *setup_;
  const Signature& signature = signatures_[s];
  runtime_->backend().use();
  const DeviceScope scope(setup.space);
  Tensors samples;
  for (size_t i = 0; i + 1 < inputs_[s].size(); ++i) samples.push_back(on_device(inputs_[s][i]));
  const Tensor& params = inputs_[s].back();
  Compiled compiled = setup.compiled;
  compiled.step.variables = weights_;
  const bool predicting = signature.kind == StepKind::predict;
  std::vector<Head> heads;
  if (!predicting) heads = heads_of(compiled, setup.network);
  const StepInputs inputs =
      arrange_inputs(setup.network, compiled, setup.sample, facts_of(heads, setup.sample),
                     std::move(samples), params);
  EagerStep step({setup.network, compiled, heads, signature, inputs}, variables_, setup.space,
                 layout_, kept_[s]);
  if (!predicting) {
    step.run();
    return !step.stopped();
  }
  const Tensors outputs = step.forward(inputs.x, false);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Tensor wide = cast(outputs[o], compiled.dtype.variable);
    std::memcpy(kept_[s][o].data(), wide.data(), static_cast<size_t>(wide.meta().bytes()));
  }
  return true;
}

}  // namespace pl
