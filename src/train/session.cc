#include "train/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "backend/cpu/code_pages.h"
#include "base/error.h"
#include "base/file.h"
#include "execute/call_file.h"
#include "train/device_full.h"
#include "train/device_link.h"
#include "train/eager_steps.h"

namespace pl {

namespace {

std::vector<std::string> names_of(const StepLayout& step) {
  std::vector<std::string> names;
  for (const LogTerm& term : step.logs)
    if (term.name != "loss") names.push_back(term.name);
  return names;
}

}  // namespace

std::vector<std::string> log_names(const SessionPlan& plan) { return names_of(plan.step); }
std::vector<std::string> test_log_names(const SessionPlan& plan) { return names_of(plan.test); }

HostBill host_bill(const SessionPlan& plan) {
  HostBill bill;
  if (!plan.on_device) return bill;
  Bytes inputs = 0;
  for (const Prepared& prepared : plan.prepared) {
    const LinkPlaces places = link_places(prepared.graph, prepared.plan.alignment);
    bill.staging = std::max(bill.staging, places.end);
    inputs = std::max(inputs, places.input_end);
  }
  if (plan.ahead > 0) bill.staging += inputs;
  bill.state = plan.host_bytes;
  bill.activations = plan.away;
  bill.copy = plan.layout.bytes;
  bill.snapshot = plan.snapshot;
  return bill;
}

void grant_snapshot(SessionPlan& plan, Bytes wanted, std::optional<Bytes> budget,
                    std::optional<Bytes> system) {
  plan.snapshot = wanted;
  if (plan.on_device) {
    const Bytes room = system ? *system : host_room().least();
    if (wanted > 0 && host_bill(plan).sum() > room) plan.snapshot = 0;
    return;
  }
  const Bytes process = plan.process();
  if ((budget && process > *budget) || (system && process > *system)) plan.snapshot = 0;
}

void grant_ahead(SessionPlan& plan, std::optional<Bytes> budget, std::optional<Bytes> system) {
  plan.ahead = 0;
  Backend& backend = plan.memory->book.backend();
  if (backend.on_host() || !device_work(backend)) return;
  Bytes inputs = 0;
  for (const Prepared& prepared : plan.prepared)
    inputs = std::max(inputs, link_places(prepared.graph, backend.alignment()).input_end);
  const Bytes wanted = align_up(inputs, backend.granule()), process = plan.process() + wanted;
  if ((!budget || process <= *budget) && (!system || process <= *system)) plan.ahead = wanted;
}

Session::Session(SessionPlan plan, const Network& network, uint64_t seed,
                 std::future<MadeWeights> weights)
    : plan_(std::move(plan)) {
  Backend& backend = plan_.memory->book.backend();
  if (backend.on_host()) {
    release_code_pages();
    variables_ = std::make_shared<Variables>(plan_.layout);
    variables_->initialize(network, seed);
  } else {
    variables_ = std::make_shared<Variables>(plan_.layout, plan_.arena, backend, plan_.host_bytes);
    if (!weights.valid())
      weights = std::async(std::launch::async, [layout = plan_.layout, &network, seed] {
        return make_weights(layout, network, seed);
      });
    start();
    warm_up();
    variables_->clear();
    variables_->send_weights(weights.get());
  }
  for (const auto& [path, value] : plan_.slot_starts) variables_->set_slot(path, value);
  if (backend.on_host()) start();
  variables_->stepped();
}

Session::Session(SessionPlan plan, std::shared_ptr<Variables> variables)
    : plan_(std::move(plan)), variables_(std::move(variables)) {
  check(variables_->layout().bytes == plan_.layout.bytes, "variables of another layout");
  release_code_pages();
  start();
  if (link_) warm_up_device();
}

void Session::warm_up() {
  try {
    for (auto& executor : executors_) executor->warm_up();
    for (auto& executor : executors_) executor->record();
  } catch (const BackendError& error) {
    throw BackendError("[prepare] before step 1: " + std::string(error.what()));
  }
}

// Steps run once before weights count: what they write is put back.
void Session::warm_up_device() {
  bool writes = false;
  for (const Prepared& prepared : plan_.prepared)
    for (const GraphVariable& variable : prepared.graph.variables)
      writes = writes || variable.first != variable.last;
  if (writes) variables_->at(0);
  warm_up();
  if (device_transient_)
    link_->device().zero(device_transient_->data(), device_transient_->bytes());
  if (writes) variables_->written();
  variables_->stepped();
  count_iterations();
}

void Session::count_iterations() {
  if (!device_iterations_) return;
  Backend& device = plan_.memory->book.backend();
  device.copy_out(counted_.get(), device_iterations_, sizeof(double));
  device.synchronize();
}

Session::Session(Session&&) noexcept = default;
Session::~Session() = default;

void* Session::input(size_t signature, size_t i) {
  if (link_) return link_->input(signature, i);
  return eager_ ? eager_->input(signature, i) : executors_[signature]->input(i);
}
const void* Session::kept(size_t signature, size_t i) const {
  if (link_) return link_->kept(signature, i);
  return eager_ ? eager_->kept(signature, i) : executors_[signature]->kept(i);
}

void Session::find_iterations() {
  if (!plan_.optimizer || plan_.optimizer->iterations_slot() < 0) return;
  const Optimizer& optimizer = *plan_.optimizer;
  const std::string path =
      std::string(optimizer.name()) + "/" +
      optimizer.shared_slots(Dtype::float32)[index(optimizer.iterations_slot())].name;
  for (size_t i = 0; i < plan_.layout.entries.size(); ++i) {
    if (plan_.layout.entries[i].path != path) continue;
    if (variables_->on_host()) {
      iterations_ = static_cast<const double*>(variables_->at(i));
    } else {
      counted_ = std::make_unique<double>(0);
      iterations_ = counted_.get();
      device_iterations_ = variables_->place(i);
    }
  }
}

// The arena's one reservation has the variables and, behind them, room for the steps; variables
// that came from elsewhere have not.
void Session::start_device() {
  Backend& device = plan_.memory->book.backend();
  check(variables_->pinned_bytes() == plan_.host_bytes, "variables of another plan's place");
  ArenaView view{.persistent = variables_->data(),
                 .transient = variables_->steps(),
                 .host = variables_->pinned(),
                 .host_at = plan_.layout.bytes - plan_.host_bytes};
  if (variables_->capacity() < plan_.arena) {
    device_transient_ = reserve_on(device, plan_.arena - plan_.layout.bytes);
    view.transient = device_transient_->data();
  }
  if (plan_.away > 0) {
    away_ = device.reserve_staging(plan_.away);
    view.away = away_->data();
  }
  std::vector<const Graph*> graphs;
  for (const Prepared& prepared : plan_.prepared) {
    graphs.push_back(&prepared.graph);
    executors_.push_back(
        std::make_unique<Executor>(prepared.graph, prepared.plan, prepared.kernels, view, &device));
  }
  link_ = std::make_unique<DeviceLink>(device, graphs, plan_.ahead);
}

void Session::start() {
  find_iterations();
  plan_.memory->memo.forget();  // some hundred KiB of plans that were not chosen
  if (plan_.eager) {
    release_code_pages();
    eager_ = std::make_unique<EagerSteps>(plan_, variables_);
    return;
  }
  try {
    std::vector<const Graph*> graphs;
    for (const Prepared& prepared : plan_.prepared)
      if (prepared.kernels.nodes.empty()) graphs.push_back(&prepared.graph);
    plan_.memory->book.prepare_ahead(graphs, true);
    for (Prepared& prepared : plan_.prepared)
      if (prepared.kernels.nodes.empty())
        prepared.kernels = plan_.memory->book.kernels(prepared.graph);
  } catch (const StaleCalls&) {
    remove_file(calls_path(plan_.memory->book));
    throw;
  }
  if (!variables_->on_host()) return start_device();
  release_code_pages();
  transient_ = Reservation(plan_.arena - plan_.layout.bytes);
  transient_.prefault();
  const ArenaView view{variables_->data(), transient_.data()};
  for (const Prepared& prepared : plan_.prepared)
    executors_.push_back(
        std::make_unique<Executor>(prepared.graph, prepared.plan, prepared.kernels, view));
}

void Session::write_params(size_t signature, const StepParams& params) {
  const auto& host = plan_.host[signature];
  const size_t at = plan_.prepared[signature].graph.inputs.size() - 1 - host.size();
  std::memcpy(input(signature, at), &params, sizeof params);
  for (size_t h = 0; h < host.size() && !eager_; ++h) host[h](input(signature, at + 1 + h), params);
}

void Session::send_inputs(size_t signature) {
  if (link_) link_->send(signature, *executors_[signature]);
}

void Session::receive(size_t signature) {
  if (!link_) {  // the processor, or a device's steps op by op
    count_iterations();
    return variables_->stepped();
  }
  if (device_iterations_)
    link_->device().copy_out(counted_.get(), device_iterations_, sizeof(double));
  link_->receive(signature, *executors_[signature]);
  executors_[signature]->waited();
  variables_->stepped();
}

// A device's failure may surface long behind the launch that caused it: it gets the ops that were
// under way and the step's number. Who evaluates or predicts knows the batch's.
template <class Body>
void Session::named_step(size_t signature, const StepParams& params, const Body& body) {
  if (plan_.memory->book.backend().on_host()) return body();
  auto named = [&](const BackendError& error) {
    const bool trains = plan_.signatures[signature].kind == StepKind::train;
    return BackendError(
        (trains ? "[train] step " + std::to_string(params.step) + ": " : std::string()) +
        error.what());
  };
  try {
    body();
  } catch (const DeviceFault& fault) {
    throw named(eager_ ? BackendError(fault) : executors_[signature]->located(fault));
  } catch (const BackendError& error) {
    throw named(error);
  }
}

bool Session::reads_ahead() const { return link_ && link_->reads_ahead(); }
void Session::begin_ahead() { link_->begin_ahead(); }
void Session::send_ahead(size_t signature) { link_->send_ahead(signature); }
void Session::drop_ahead() {
  if (link_) link_->drop_ahead();
}

void Session::run(size_t signature, const StepParams& params, StepTimes* times,
                  const Beside& beside) {
  write_params(signature, params);
  named_step(signature, params, [&] {
    send_inputs(signature);
    if (eager_)
      eager_->run(signature);
    else
      executors_[signature]->step(times);
    if (beside) beside();
    receive(signature);
  });
}

bool Session::run_if_finite(size_t signature, const StepParams& params, StepTimes* times,
                            const Beside& beside) {
  write_params(signature, params);
  bool finite = true;
  named_step(signature, params, [&] {
    send_inputs(signature);
    finite = eager_ ? eager_->run(signature) : executors_[signature]->step_if_finite(times);
    if (finite && beside) beside();
    receive(signature);
  });
  return finite;
}

Bytes Session::used_bytes() const {
  Bytes used = eager_ ? plan_.layout.bytes + eager_->peak() : 0;
  for (const auto& executor : executors_) used = std::max(used, executor->used_bytes());
  return used;
}

Bytes Session::used_away_bytes() const {
  Bytes used = 0;
  for (const auto& executor : executors_) used = std::max(used, executor->used_away_bytes());
  return used;
}

SessionPlan Session::take_plan() {
  link_.reset();
  executors_.clear();
  eager_.reset();
  return std::move(plan_);
}

UpdateMoment update_moment(const Session& session, int64_t steps_before) {
  if (!session.plan().optimizer) return {false, steps_before + 1, 0};  // nothing is trained
  const Optimizer& optimizer = *session.plan().optimizer;
  const double* counted = session.counted_iterations();
  const int64_t iterations = counted
                                 ? static_cast<int64_t>(*counted)
                                 : steps_before * session.plan().step.updates_of(optimizer.name());
  const int64_t steps = optimizer.update_options().gradient_accumulation_steps.value_or(1);
  return {(iterations + 1) % steps != 0, iterations / steps + 1, optimizer.rate_at(iterations)};
}

void finalize_variable_values(Session& session) {
  const Optimizer& optimizer = *session.plan().optimizer;
  if (!optimizer.update_options().use_ema) return;
  Variables& variables = session.variables();
  const auto& entries = variables.layout().entries;
  for (size_t w = 0; w < entries.size(); ++w) {
    const std::string average =
        std::string(optimizer.name()) + "/" + entries[w].path + "/" + kAverageSlot;
    for (size_t i = w + 1; i < entries.size(); ++i)
      if (entries[i].path == average)
        std::memcpy(variables.at(w), variables.at(i), static_cast<size_t>(entries[w].meta.bytes()));
  }
  variables.written();
}

double kept_scalar(const Session& session, size_t signature, size_t i) {
  const Graph& graph = session.plan().prepared[signature].graph;
  const Meta& meta = graph.values[static_cast<size_t>(graph.keep[i])].meta;
  check(meta.elements() == 1 && is_floating(meta.dtype), "a kept scalar");
  return meta.dtype == Dtype::float64 ? *static_cast<const double*>(session.kept(signature, i))
                                      : *static_cast<const float*>(session.kept(signature, i));
}

}  // namespace pl
