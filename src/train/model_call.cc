#include "train/model_call.h"

#include <algorithm>

#include "backend/cpu/code_pages.h"
#include "base/error.h"
#include "train/samples.h"

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
    sample_ = sample_of(*needs.data, state.network, x_scale);
    batch_ = std::min(needs.batch, needs.data->size());
  } else {
    sample_ = wanted_sample(state.network, compiled_);
    sample_.x_scale = x_scale;
    batch_ = needs.batch;
  }
  for (Source* source : {needs.data, needs.validation}) {
    if (!source) continue;
    source_bytes_ += source->resident_bytes();
    if (sample_like(sample_, *source, state.network) != sample_) {
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
  layout_ =
      !training && state.variables_here() ? state.variables->layout() : state.layout(training);
  const CallbackBill bill = callback_bill(needs.callbacks, layout_);
  source_bytes_ += bill.resident;
  callback_bytes_ = bill.resident;
  snapshot_ = bill.wanted;
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

Bytes ModelCall::held_by_others() const {
  const Backend& backend = state_.where();
  return backend.on_host() ? 0 : backend.held() - state_.bytes_on_device();
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
  // Others took more since then than its bill has. What is for the inputs ahead is not theirs.
  if (plan_ && !backend.on_host() && held_by_others() > plan_->device.sum()) plan_.reset();
  if (!plan_) plan_ = plan_for(wanted, options);
  if (!plan_->complete && plan_->process() > system_limit(&backend)) {
    options.all = true;  // the message that follows names the smallest plan
    plan_ = plan_for(wanted, options);
  }
  Bytes snapshot_room = system_limit(&backend);
  if (plan_->on_device)  // the host's then; state that is pinned there already is of the bill
    snapshot_room =
        host_room().least() + (state_.variables_here() ? state_.variables->pinned_bytes() : 0);
  grant_snapshot(*plan_, snapshot_, budget_, snapshot_room);
  grant_ahead(*plan_, budget_, system_limit(&backend));
}

PlanReport ModelCall::plan(const Budget& budget, bool want_max_batch) {
  Backend& backend = state_.use_backend(needs_.threads);
  budget_ = budget.bytes(&backend);
  const PlanKey wanted = key(batch_);
  PlanOptions options{.budget = budget_, .switches = needs_.switches, .all = want_max_batch};
  if (!backend.on_host() && !compiled_.run_eagerly) {
    const Bytes away = needs_.switches.away;
    options.host = host_room().for_device(away == kHalfOfHost ? std::nullopt : std::optional(away));
  }
  if (needs_.kind != StepKind::train)
    options.pinned = state_.variables_here() ? state_.variables->pinned_bytes() : 0;
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
  report.callbacks = callback_bytes_;
  if (report.on_device) {
    report.host_bill.pipeline = pipeline_bytes_;
    report.host_bill.callbacks = callback_bytes_;
    if (state_.variables_here())  // which wait there while theirs is reserved
      report.host_bill.copy = std::max(report.host_bill.copy, state_.variables->layout().bytes);
  }
  std::optional<Bytes> system;  // to be reserved, and not yet
  if (!want_max_batch && !session_ && !needs_.asks) system = system_limit(&backend);
  judge(
      report, [&](int64_t batch, const PlanOptions& other) { return plan_for(key(batch), other); },
      options, needs_.data ? needs_.data->size() : kLargestBatch, want_max_batch, system);
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
  const Backend& backend = state_.where();
  require_room(report, state_.variables ? state_.variables->layout().bytes : 0, &backend);
  release_code_pages();
  Session session = [&] {
    try {
      return reserve(seed);
    } catch (const DoesNotFit& error) {  // somebody was quicker
      throw refused(error, report, &backend);
    }
  }();
  warning_ = check_resident(report, &backend);
  state_.x_scale = sample_.x_scale;
  return session;
}

Session ModelCall::reserve(uint64_t seed) {
  const bool training = needs_.kind == StepKind::train;
  Variables& variables = training ? state_.weights_to_write(seed) : state_.weights(seed);
  if (training && (state_.fresh_optimizer || !same_entries(variables.layout(), layout_))) {
    variables.adopt(layout_, plan_->host_bytes);
    for (const auto& [path, value] : plan_->slot_starts) variables.set_slot(path, value);
    state_.fresh_optimizer = false;
  } else if (training) {
    variables.pin(plan_->host_bytes);
  }
  return Session(std::move(*plan_), state_.variables);
}

void ModelCall::keep(Session session) {
  if (state_.device && state_.one_batch && !session.eager()) {
    state_.held_session.emplace(key(batch_), std::move(session));
    return;
  }
  SessionPlan plan = session.take_plan();
  { const Session gone = std::move(session); }  // with its memory
  keep_plan(std::move(plan));
}

void ModelCall::keep_plan(SessionPlan plan) { state_.last.emplace(key(batch_), std::move(plan)); }

}  // namespace pl
