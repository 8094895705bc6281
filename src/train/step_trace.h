// Traces one step of a network: forward, loss, gradients and updates in one Graph.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/loss.h"
#include "model/network.h"
#include "train/optimizer.h"

namespace pl {

// What compile() settles.
struct Compiled {
  OptimizerRef optimizer;
  Loss loss;
  std::vector<std::string> metrics;
  Policy dtype;  // of variables and of the computation
  // Layers whose activations are computed again for the backward part, by name or pattern
  // (mark_remat in plan/remat.h), or "full": every layer.
  std::vector<std::string> remat = {};
};

enum class StepKind : uint8_t { train, evaluate, predict };
const char* name_of(StepKind kind);

struct Signature {
  StepKind kind = StepKind::train;
  int64_t batch = 32;
  bool operator==(const Signature&) const = default;
};

// One sample as the data set has it. x is cast to the network's dtype and multiplied by x_scale;
// tokens are cast to int32.
struct SampleSpec {
  Meta x, y;
  double x_scale = 1;
  bool resident = false;  // the batch is written once and must survive every step
  bool operator==(const SampleSpec&) const = default;
};

// The variables of a step: all weights in creation order, then (training) the slots of each
// trainable weight. Value ids are left open.
std::vector<GraphVariable> step_variables(const Network& network, const Compiled& compiled,
                                          bool training);

// Inputs of the graph, in order: x (B, ...), y (B, ...) unless predicting, step parameters.
// Kept values: the mean loss, then per metric the sum over samples; when predicting, the outputs.
// A resident batch is kept behind these.
Graph trace_step(const Network& network, const Compiled& compiled, const Signature& signature,
                 const SampleSpec& sample);

}  // namespace pl
