// Traces one step of a network: forward, loss, gradients and updates in one Graph.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/loss.h"
#include "model/metric.h"
#include "model/network.h"
#include "op/step_params.h"
#include "trace/variable.h"
#include "train/optimizers.h"
#include "train/step_data.h"

namespace pl {

// What one output is trained on and measured by.
struct Head {
  std::optional<Loss> loss = {};  // none: it is not trained on
  double weight = 1;              // in the sum of all losses
  MetricList metrics = {}, weighted_metrics = {};
  bool has_target() const { return loss || !metrics.empty() || !weighted_metrics.empty(); }
};

// A step of the user's own: train_step and test_step of a class derived from Model.
struct CustomStep {
  std::function<TensorLogs(const StepData&)> run = nullptr;  // null: the standard step
  const void* model = nullptr;                               // whose it is
  std::vector<Variable> variables = {};                      // as the network's weights
};

// What compile() settles.
struct Compiled {
  OptimizerRef optimizer;
  Loss loss;                     // of every output, unless there are heads
  MetricList metrics;            // of a network with one output, unless there are heads
  Policy dtype;                  // of variables and of the computation
  std::vector<Head> heads = {};  // one for each output; empty: as above
  // Layers whose activations are computed again for the backward part, by name or pattern
  // (mark_remat in plan/remat.h), or "full": every layer.
  std::vector<std::string> remat = {};
  CustomStep step = {};
  bool run_eagerly = false;         // op by op, the step's code anew for every batch
  bool fuse = true;                 // false: ops run as they were called, without plan/passes.h
  int64_t steps_per_execution = 1;  // that callbacks see as one
  std::shared_ptr<DeviceSpace> space = nullptr;  // where run_eagerly does; null: the processor
};

// One for each output. Throws UserError when their number is not the network's.
std::vector<Head> heads_of(const Compiled& compiled, const Network& network);
// The optimiser's gradient_accumulation_steps; 0: none.
inline int64_t accumulation_of(const Compiled& compiled) {
  return compiled.optimizer->update_options().gradient_accumulation_steps.value_or(0);
}

enum class StepKind : uint8_t { train, evaluate, predict };
const char* name_of(StepKind kind);

struct Signature {
  StepKind kind = StepKind::train;
  int64_t batch = 32;
  bool accumulate = false;  // of a training step: gradients are added up, weights stay
  bool operator==(const Signature&) const = default;
};

// One sample as the data set has it: as many x as the network has inputs, and y for the outputs
// that have a target. x is cast to the network's dtype and multiplied by x_scale; tokens are cast
// to int32.
struct SampleSpec {
  Metas x, y;
  double x_scale = 1;
  bool resident = false;  // the batch is written once and must survive every step
  Metas weights = {};     // sample weights: none, one for all targets, or one for each
  bool operator==(const SampleSpec&) const = default;
};

// The variables of a step: all weights in creation order, then (training) the optimiser's shared
// slots and those of each trainable weight. Value ids are left open.
std::vector<GraphVariable> step_variables(const Network& network, const Compiled& compiled,
                                          bool training);

// What slots are before the first step, where it is not zero.
struct SlotStart {
  std::string path;
  double value;
};
std::vector<SlotStart> slot_starts(const Network& network, const Compiled& compiled);

// A figure of the log beside the loss: values that every step keeps, behind the loss, and what
// their totals over steps make.
struct LogTerm {
  std::string name;             // "accuracy", "out1_loss"; "loss": instead of the mean over samples
  size_t first = 0, count = 0;  // kept values
  // Of the totals: Metric::Result. Null: a loss, of which the log has the mean over samples.
  Metric::Result result = nullptr;
};

// A number that belongs to a batch and follows from its targets and weights (BatchFacts); an input
// of the step, filled in when the samples are.
struct HostFact {
  enum class Kind : uint8_t { factor, binary };
  Kind kind;
  Loss loss;
  size_t target = 0;                  // input with the targets
  std::optional<size_t> weight = {};  // input with the weights
};

struct StepLayout {
  std::vector<LogTerm> logs;    // the same for training and evaluation
  std::vector<HostFact> facts;  // inputs between samples and step parameters
  // Of a custom step: what fills the inputs behind the step parameters, before every step; and its
  // optimisers' slots that do not start as zeros.
  std::vector<std::function<void(void* to, const StepParams&)>> host;
  std::vector<SlotStart> slot_starts;
  // How often it applies gradients, by the optimisers' paths ("adam", "sgd_1"); absent: once.
  std::map<std::string, int64_t, std::less<>> updates;

  int64_t updates_of(std::string_view optimizer) const {
    const auto at = updates.find(optimizer);
    return at == updates.end() ? 1 : at->second;
  }
};

// Inputs of the graph, in order: x (B, ...) of each input, then, unless predicting, y (B, ...) of
// each target, weights (B, ...), facts (), the step parameters; last what a custom step adds.
// Kept values: the loss, then those of the log's terms; when predicting, the outputs. A resident
// batch is kept behind these.
Graph trace_step(const Network& network, const Compiled& compiled, const Signature& signature,
                 const SampleSpec& sample, StepLayout* layout = nullptr);

}  // namespace pl
