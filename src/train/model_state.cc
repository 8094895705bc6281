#include "train/model_state.h"

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include "backend/cpu/code_pages.h"
#include "base/error.h"
#include "train/model.h"
#include "train/samples.h"
#include "train/step_scope.h"

namespace pl {
namespace {

constexpr int64_t kLargestBatch = (int64_t{1} << 31) - 1;  // oneDNN counts rows in 32 bits

// On a device plans go by what was measured there; what the model holds already is in the arena.
std::shared_ptr<PlanMemory> plan_memory(Backend& backend, Bytes held) {
  if (backend.on_host()) return std::make_shared<PlanMemory>(backend);
  auto memory = std::make_shared<PlanMemory>(backend, machine_costs(backend));
  memory->device_variables = held;
  return memory;
}

bool same_entries(const VariableLayout& a, const VariableLayout& b) {
  return std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                    [](const auto& x, const auto& y) {
                      return x.path == y.path && x.meta == y.meta && x.at == y.at;
                    });
}

}  // namespace

void ModelState::build(const std::vector<Shape>& inputs, const std::vector<Dtype>& dtypes) {
  if (network.built()) {
    if (inputs.size() != network.input_shapes().size())
      throw UserError("[build] " + network.calls()[0].path + ": expected " +
                      std::to_string(network.input_shapes().size()) +
                      " inputs as at first, received " + std::to_string(inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] != network.input_shapes()[i])
        throw UserError("[build] " + network.calls()[0].path + ": expected samples of shape " +
                        network.input_shapes()[i].text() + " as at first, received " +
                        inputs[i].text());
    return;
  }
  if (!layers.empty()) {
    if (inputs.size() != 1)
      throw UserError("[build] " + name + ": expected one input, received " +
                      std::to_string(inputs.size()));
    network = chain(inputs[0], layers, name, &this->inputs, &outputs);
  } else {
    const LayerRef own = subclass(dtypes);
    own->name = name;
    std::vector<Symbolic> symbols;
    for (const Shape& shape : inputs) symbols.push_back(Input(shape));
    network = Network(symbols, own.all(symbols));
    by_call = true;
    input_dtypes = dtypes;
  }
  if (heads && compiled) compiled->heads = heads(network.output_names());
}

void ModelState::build_for(const Source& data) {
  if (network.built()) return;
  std::vector<Shape> shapes;
  std::vector<Dtype> dtypes;
  for (const Field* field : fields_of(data, Role::x)) {
    shapes.push_back(field->sample.shape);
    dtypes.push_back(field->sample.dtype);
  }
  build(shapes, dtypes);
}

void ModelState::require_idle(const char* call) const {
  if (running)
    throw UserError("[" + std::string(call) + "] expected to be called between two calls of " +
                    running +
                    "(), received a call from a callback of one that runs; stop it with "
                    "model->stop_training = true, and call " +
                    call + "() behind it");
}
void ModelState::require_built(const char* call) const {
  if (network.built()) return;
  if (custom())
    throw UserError("[" + std::string(call) + "] " + name +
                    ": expected a model that is built; call build() with the shape of one sample, "
                    "or fit() or predict(), first");
  throw UserError(
      "[" + std::string(call) + "] " + name +
      ": expected an input shape; give it first, Sequential(Shape{28, 28, 1}, {...}), " +
      "or call build() or fit()");
}

const Compiled& ModelState::require_compiled(const char* call) const {
  if (compiled) return *compiled;
  throw UserError("[" + std::string(call) + "] " + name +
                  ": expected compile() before it; call compile({.optimizer = Adam(), " +
                  ".loss = \"sparse_categorical_crossentropy\"})");
}

Backend& ModelState::use_backend(int threads) {
  if (device) return where();
  if (!backend || (threads != 0 && threads != backend->threads())) {
    auto fresh = std::make_unique<CpuBackend>(threads);
    last.reset();
    backend = std::move(fresh);
  }
  backend->use();
  return *backend;
}

Backend& ModelState::where() const { return device ? device->backend() : *backend; }

Bytes ModelState::bytes_on_device() const {
  if (!device || !variables || variables_on != device) return 0;
  return align_up(variables->capacity(), device->backend().granule());
}

Compiled ModelState::settings() const {
  if (compiled) return *compiled;
  Compiled plain;
  if (const auto dtype = existing_dtype()) plain.dtype = *dtype;
  return plain;
}

bool ModelState::custom() const {
  return self && typeid(*self) != typeid(Model) && typeid(*self) != typeid(Sequential);
}

// What the optimisers of a step of the model's own keep is known when it was traced once.
void ModelState::trace_variables(const SampleSpec& sample, int64_t batch) {
  if (!traced_variables && custom()) trace_own_step(StepKind::train, sample, batch);
}

VariableLayout ModelState::layout(bool training) {
  constexpr int64_t kAnyBatch = 32;
  const Bytes alignment = device ? device->backend().alignment() : CpuBackend::kAlignment;
  if (training && custom()) {
    trace_variables(wanted_sample(network, settings()), kAnyBatch);
    return layout_variables(*traced_variables, alignment);
  }
  return layout_variables(step_variables(network, settings(), training), alignment);
}

// On a device they hold it open.
std::shared_ptr<Variables> ModelState::make_variables(VariableLayout layout, Bytes capacity) const {
  if (!device) return std::make_shared<Variables>(std::move(layout), capacity);
  const Bytes bytes = layout.bytes;
  return {new Variables(std::move(layout), bytes, device->backend()),
          [open = device](Variables* variables) { delete variables; }};
}

void ModelState::move_variables() {
  const std::shared_ptr<Variables> from = variables;
  const std::shared_ptr<Variables> made = make_variables(layout(false), 0);
  from->stepped();
  const auto& entries = made->layout().entries;
  for (size_t i = 0; i < network.weights().size(); ++i)
    std::memcpy(made->at(i), from->at(i), static_cast<size_t>(entries[i].meta.bytes()));
  made->written();
  made->stepped();
  variables = made;
  variables_on = device;
  fresh_optimizer = true;
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (home(i).variable->keeper == from) hold(i);
}

Variables& ModelState::weights(uint64_t seed) {
  if (!variables) {
    // Room for the optimiser's slots is set aside as addresses, so that a later fit() need not
    // move the weights.
    const bool known = compiled && (!custom() || traced_variables);
    auto made = make_variables(layout(false), known ? layout(true).bytes : 0);
    made->initialize(network, seed);
    made->stepped();
    variables = std::move(made);
    variables_on = device;
    for (size_t i = 0; i < network.weights().size(); ++i)
      if (!home(i).exists()) hold(i);
    return *variables;
  }
  if (variables_on != device) move_variables();
  variables->stepped();  // eager code may have written them on the device
  bool copied = false;
  for (size_t i = 0; i < network.weights().size(); ++i) {
    const NetworkWeight& weight = network.weights()[i];
    if (home(i).variable->keeper == variables) continue;
    const Meta& meta = variables->layout().entries[i].meta;
    std::memcpy(variables->at(i), home(i).find(*weight.layer, weight.index, meta.dtype),
                static_cast<size_t>(meta.bytes()));
    copied = true;
  }
  if (copied) variables->written();
  return *variables;
}

void ModelState::require_weights() {
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (!home(i).exists()) {
      weights();
      return;
    }
}

Variables& ModelState::weights_to_write(uint64_t seed) {
  weights(seed);
  for (size_t i = 0; i < network.weights().size(); ++i) {
    if (home(i).variable->keeper == variables)
      home(i).detach_readers();
    else
      hold(i);
  }
  return *variables;
}

void ModelState::hold(size_t weight) const {
  VariableState& variable = *home(weight).variable;
  variable.name = network.weights()[weight].path;
  home(weight).move(
      variables, [all = variables.get(), weight] { return all->kernels_find(weight); },
      variables_on);
  variable.meta = variables->layout().entries[weight].meta;
}

const WeightHome& ModelState::home(size_t weight) const {
  const auto& values = network.weights()[weight].values;
  check(values != nullptr, "every weight of a model has a home");
  return static_cast<const WeightHome&>(*values);
}

std::optional<Dtype> ModelState::existing_dtype() const {
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (home(i).exists()) return home(i).variable->meta.dtype;
  return {};
}

bool ModelState::trains(size_t weight) const {
  const NetworkWeight& of = network.weights()[weight];
  return !of.state && of.layer->trains(of.index);
}

ModelState::~ModelState() {
  held_session.reset();
  if (variables && !variables->on_host()) {
    last.reset();
    device.reset();
    try {
      move_variables();
    } catch (const Error&) {  // a device that is broken keeps what it has
    }
    return;
  }
  if (!variables) return;
  VariableLayout weights = variables->layout();
  weights.bytes = weight_bytes(weights);
  std::erase_if(weights.entries,
                [](const auto& entry) { return entry.category != Category::parameters; });
  if (weights.entries.size() < variables->layout().entries.size()) variables->adopt(weights);
}

void ModelState::trace_own_step(StepKind kind, const SampleSpec& sample, int64_t batch) {
  for (;;) try {
      Graph graph = trace_step(network, step_settings(), {kind, batch}, sample);
      if (kind == StepKind::train) traced_variables = std::move(graph.variables);
      return;
    } catch (const NewMember& found) {
      if (!by_call) throw;
      add_member(found.layer, found.in);
    }
}

// Weights that exist keep their values, which are their homes'.
void ModelState::add_member(const std::shared_ptr<Layer>& layer, const std::vector<Shape>& in) {
  for (const auto& [known, shapes] : also) check(known != layer, "a layer joins a model once");
  also.emplace_back(layer, in);
  const std::vector<Shape> inputs = network.input_shapes();
  network = Network();
  variables.reset();
  traced_variables.reset();
  last.reset();
  held_session.reset();
  fresh_optimizer = true;
  build(inputs, input_dtypes);
}

namespace {

const char* call_of(StepKind kind) { return kind == StepKind::train ? "fit" : name_of(kind); }

}  // namespace

ModelCall::ModelCall(ModelState& state, const Needs& needs)
    : state_(state), needs_(needs), compiled_(state.settings()) {
  if (needs.batch < 1)
    throw UserError("[" + std::string(call_of(needs.kind)) +
                    "] batch_size: expected a positive number, received " +
                    std::to_string(needs.batch));
  const bool training = needs.kind == StepKind::train;
  for (const Source* source : {needs.data, needs.validation})
    if (source && needs.kind != StepKind::predict && !state.custom() &&
        fields_of(*source, Role::y).empty())
      throw UserError("[" + std::string(call_of(needs.kind)) +
                      "] expected samples with targets, received x alone");
  if (needs.data) state.build_for(*needs.data);
  state.require_built("plan");
  if (needs.kind != StepKind::predict) compiled_ = state.step_settings();
  const double x_scale = needs.x_scale.value_or(training ? 1 : state.x_scale);
  if (needs.data) {
    sample_ = sample_of(*needs.data, state.network, compiled_, x_scale);
    batch_ = std::min(needs.batch, needs.data->size());
  } else {
    sample_ = wanted_sample(state.network, compiled_);
    sample_.x_scale = x_scale;
    batch_ = needs.batch;
  }
  for (Source* source : {needs.data, needs.validation}) {
    if (!source) continue;
    source_bytes_ += source->resident_bytes();
    if (sample_of(*source, state.network, compiled_, x_scale) != sample_) {
      std::string received;
      for (const Field& field : source->fields())
        received += (received.empty() ? "" : " with ") + field.sample.text();
      throw DataError(
          "[fit] validation_data: expected samples like the training data's, received " + received);
    }
    check_tokens(*source, state.network);
    if (needs.kind != StepKind::predict) check_labels(*source, state.network, compiled_);
  }
  source_bytes_ += needs.extra_bytes;
  pipeline_bytes_ = source_bytes_;
  if (needs.kind == StepKind::evaluate && state.custom() && !state.test_step_traced) {
    state.trace_own_step(needs.kind, sample_, batch_);
    state.test_step_traced = true;
  }
  if (training) state.trace_variables(sample_, batch_);
  if (needs.kind != StepKind::predict) compiled_ = state.step_settings();
  const bool there = state.variables && state.variables_on == state.device;
  layout_ = !training && there ? state.variables->layout() : state.layout(training);
  const CallbackBill bill = callback_bill(needs.callbacks, layout_);
  source_bytes_ += bill.resident;
  if (!state.device) snapshot_ = bill.wanted;
}

PlanKey ModelCall::key(int64_t batch) const {
  PlanKey key{.signatures = {}, .sample = sample_};
  LoopOptions loop{.batch = batch,
                   .validation_batch = needs_.validation_batch,
                   .validation_steps = needs_.validation_steps};
  if (needs_.kind == StepKind::train) loop.accumulate = accumulation_of(compiled_);
  const int64_t samples = needs_.data ? needs_.data->size() : batch;
  key.signatures =
      needs_.kind == StepKind::train
          ? signatures_for(loop, samples, needs_.validation ? needs_.validation->size() : 0)
          : signatures_for(needs_.kind, batch, samples_in(samples, batch, needs_.steps));
  key.source_bytes = source_bytes_ + loop_bytes(loop);
  key.variable_bytes = layout_.bytes;
  key.budget = budget_;
  key.switches = needs_.switches;
  return key;
}

SessionPlan ModelCall::plan_for(const PlanKey& key, const PlanOptions& options) const {
  return plan_session(state_.network, compiled_, state_.where(), key.signatures, key.sample,
                      key.source_bytes, &layout_, options);
}

SessionPlan ModelCall::plan_other(const Network& network, const Compiled& compiled) const {
  const PlanKey same = key(batch_);
  SampleSpec sample = same.sample;
  if (!needs_.data) sample = wanted_sample(network, compiled);
  return plan_session(network, compiled, state_.where(), same.signatures, sample, same.source_bytes,
                      nullptr, {.budget = budget_, .memory = plan_->memory});
}

void ModelCall::make_plan(const PlanKey& wanted, PlanOptions& options, bool want_max_batch) {
  const Backend& backend = state_.where();
  if (state_.held_session && state_.held_session->first == wanted && !want_max_batch) {
    session_.emplace(std::move(state_.held_session->second));
    state_.held_session.reset();
    return;
  }
  state_.held_session.reset();
  options.memory = plan_memory(state_.where(), state_.bytes_on_device());
  if (state_.last && state_.last->first == wanted) plan_ = std::move(state_.last->second);
  state_.last.reset();
  if (plan_ && want_max_batch && !plan_->complete) plan_.reset();
  if (!plan_) plan_ = plan_for(wanted, options);
  if (!plan_->complete && plan_->process() > system_limit(&backend)) {
    options.all = true;  // the message that follows names the smallest plan
    plan_ = plan_for(wanted, options);
  }
  grant_snapshot(*plan_, snapshot_, budget_, system_limit(&backend));
  grant_ahead(*plan_, budget_, system_limit(&backend));
}

PlanReport ModelCall::plan(const Budget& budget, bool want_max_batch) {
  Backend& backend = state_.use_backend(needs_.threads);
  budget_ = budget.bytes(&backend);
  const PlanKey wanted = key(batch_);
  PlanOptions options{.budget = budget_, .switches = needs_.switches, .all = want_max_batch};
  make_plan(wanted, options, want_max_batch);
  PlanReport report = describe(session_plan());
  report.words = {"batch_size = ", "memory = ", "split = 0", "recompute = true"};
  report.model = state_.name;
  report.optimizer = compiled_.optimizer ? compiled_.optimizer->name() : name_of(needs_.kind);
  report.dtype = compiled_.dtype;
  report.remat = compiled_.remat;
  report.batch = batch_;
  report.threads = backend.threads();
  if (state_.device) report.device = state_.device->name();
  report.deterministic = state_.deterministic;
  report.budget = budget_;
  report.pipeline = pipeline_bytes_;
  judge(
      report, [&](int64_t batch, const PlanOptions& other) { return plan_for(key(batch), other); },
      options, needs_.data ? needs_.data->size() : kLargestBatch, want_max_batch);
  return report;
}

Session ModelCall::start(const PlanReport& report, uint64_t seed) {
  const bool training = needs_.kind == StepKind::train;
  if (session_) {
    const Variables& variables = training ? state_.weights_to_write(seed) : state_.weights(seed);
    const bool same = &variables == &session_->variables() &&
                      !(training && state_.fresh_optimizer) &&
                      same_entries(variables.layout(), layout_);
    Session session = std::move(*session_);
    session_.reset();
    if (same) return session;
    plan_ = session.take_plan();
  }
  require_room(report, state_.variables ? state_.variables->layout().bytes : 0, &state_.where());
  release_code_pages();
  Variables& variables = training ? state_.weights_to_write(seed) : state_.weights(seed);
  if (training && (state_.fresh_optimizer || !same_entries(variables.layout(), layout_))) {
    variables.adopt(layout_);
    for (const auto& [path, value] : plan_->slot_starts) variables.set_slot(path, value);
    state_.fresh_optimizer = false;
  }
  Session session(std::move(*plan_), state_.variables);
  check_resident(report, &state_.where());
  state_.x_scale = sample_.x_scale;
  return session;
}

void ModelCall::keep(Session session) {
  if (state_.device && state_.one_batch)
    state_.held_session.emplace(key(batch_), std::move(session));
  else
    keep_plan(session.take_plan());
}

void ModelCall::keep_plan(SessionPlan plan) { state_.last.emplace(key(batch_), std::move(plan)); }

}  // namespace pl
