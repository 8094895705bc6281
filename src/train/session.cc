#include "train/session.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/code_pages.h"
#include "base/error.h"

namespace pl {

void grant_snapshot(SessionPlan& plan, Bytes wanted, std::optional<Bytes> budget,
                    std::optional<Bytes> system) {
  plan.snapshot = 0;
  const Bytes process = plan.process() + wanted;
  if ((!budget || process <= *budget) && (!system || process <= *system)) plan.snapshot = wanted;
}

Session::Session(SessionPlan plan, const Network& network, uint64_t seed) : plan_(std::move(plan)) {
  release_code_pages();
  variables_ = std::make_shared<Variables>(plan_.layout);
  variables_->initialize(network, seed);
  start();
}

Session::Session(SessionPlan plan, std::shared_ptr<Variables> variables)
    : plan_(std::move(plan)), variables_(std::move(variables)) {
  check(variables_->layout().bytes == plan_.layout.bytes, "variables of another layout");
  release_code_pages();
  start();
}

void Session::start() {
  for (Prepared& prepared : plan_.prepared)
    if (prepared.kernels.nodes.empty())
      prepared.kernels = plan_.memory->book.kernels(prepared.graph);
  release_code_pages();
  transient_ = Reservation(plan_.arena - plan_.layout.bytes);
  transient_.prefault();
  const ArenaView view{variables_->data(), transient_.data()};
  for (const Prepared& prepared : plan_.prepared)
    executors_.push_back(
        std::make_unique<Executor>(prepared.graph, prepared.plan, prepared.kernels, view));
}

void Session::run(size_t signature, const StepParams& params, StepTimes* times) {
  const size_t last = plan_.prepared[signature].graph.inputs.size() - 1;
  std::memcpy(executors_[signature]->input(last), &params, sizeof params);
  executors_[signature]->step(times);
}

Bytes Session::used_bytes() const {
  Bytes used = 0;
  for (const auto& executor : executors_) used = std::max(used, executor->used_bytes());
  return used;
}

SessionPlan Session::take_plan() {
  executors_.clear();
  return std::move(plan_);
}

double kept_scalar(const Session& session, size_t signature, size_t i) {
  const Graph& graph = session.plan().prepared[signature].graph;
  const Meta& meta = graph.values[static_cast<size_t>(graph.keep[i])].meta;
  check(meta.elements() == 1 && is_floating(meta.dtype), "a kept scalar");
  return meta.dtype == Dtype::float64 ? *static_cast<const double*>(session.kept(signature, i))
                                      : *static_cast<const float*>(session.kept(signature, i));
}

}  // namespace pl
