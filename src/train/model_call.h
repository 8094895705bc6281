// ModelCall: the way of one call of a Model from data to a running Session. Internal to model*.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/model_state.h"

namespace pl {

// One call of fit (train), evaluate or predict. Null data: as many samples as a batch has, as the
// model would like them.
class ModelCall {
 public:
  struct Needs {
    StepKind kind;
    Source* data = nullptr;
    Source* validation = nullptr;
    int64_t batch = 32;
    int64_t validation_batch = 0;  // 0: as batch
    int64_t steps = 0;             // of evaluate and predict: batches; 0: all
    int64_t validation_steps = 0;
    int threads = 0;
    std::optional<double> x_scale = std::nullopt;
    Bytes extra_bytes = 0;  // that the caller holds besides
    Switches switches = {};
    std::vector<CallbackRef> callbacks = {};
    bool asks = false;  // nothing will be reserved: what the machine has room for does not matter
  };
  // Builds the network if need be; throws UserError or DataError when data and model do not match.
  ModelCall(ModelState& state, const Needs& needs);

  int64_t batch() const { return batch_; }
  int64_t validation_batch() const { return needs_.validation_batch; }
  // Plans, unless the last call's plan serves.
  PlanReport plan(const Budget& budget, bool want_max_batch);
  // After plan(): checks the room, brings the variables into place, reserves.
  Session start(const PlanReport& report, uint64_t seed);
  // After start(): what the system says of it that the plan did not, or "".
  const std::string& warning() const { return warning_; }
  // After plan().
  const SessionPlan& session_plan() const { return session_ ? session_->plan() : *plan_; }
  const VariableLayout& layout() const { return layout_; }
  const Compiled& compiled() const { return compiled_; }
  // After plan(): the training step of another network or of other settings, planned likewise.
  SessionPlan plan_other(const Network& network, const Compiled& compiled) const;
  // After start() or plan(): leaves the plan with the model for the next call.
  void keep_plan(SessionPlan plan);
  void keep_plan() { keep_plan(std::move(*plan_)); }
  void keep(Session session);  // the same, or all of it

 private:
  PlanKey key(int64_t batch) const;
  void make_plan(const PlanKey& wanted, PlanOptions& options, bool want_max_batch);
  SessionPlan plan_for(const PlanKey& key, const PlanOptions& options) const;
  Session reserve(uint64_t seed);
  Bytes held_by_others() const;  // of the device, in this process: all but the model's variables

  ModelState& state_;
  Needs needs_;
  Compiled compiled_;
  SampleSpec sample_;
  VariableLayout layout_;
  Bytes source_bytes_ = 0;    // of the data, callbacks and the like
  Bytes pipeline_bytes_ = 0;  // of these: the data
  Bytes callback_bytes_ = 0;  // and the callbacks
  Bytes snapshot_ = 0;        // wanted for writing checkpoints beside training
  int64_t batch_ = 0;
  std::optional<Bytes> budget_;
  std::optional<SessionPlan> plan_;
  std::string warning_;
  std::optional<Session> session_;  // of the last call, instead of a plan
};

}  // namespace pl
