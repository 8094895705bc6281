// Plan: where every byte of a step lies, decided before the step runs. Const data: it holds no
// pointers and no kernels. Offsets count from the arena's start; variables lie at the bottom.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "op/op.h"
#include "plan/problem.h"

namespace pl {

// What the planner knows of a node, from its prepared kernel. One per node of the graph.
struct Facts {
  Bytes workspace = 0;
  std::string key;        // numerics key
  double ms = 0;          // predicted time on this machine
  double nominal_ms = 0;  // the same on a typical one: the search looks at this, so that its
                          // answers do not change with what was measured
};

// Facts of a graph and of its loops' bodies. A loop node's own entry stays empty.
struct GraphFacts {
  std::vector<Facts> nodes;
  std::vector<GraphFacts> loops;
  std::string device;  // what decides bits of all kernels, beside their keys
};

// What was decided about a graph and its loops' bodies.
struct Decision {
  Drops drops;
  std::vector<Stay> stays;
  double waits_ms = 0;  // of one trip, for copies of stays
  std::vector<Decision> loops;
};

// Offsets of all variables of a model, its optimiser slots included. The same for every plan of the
// model (training, evaluation, any batch size), so that they share one copy.
struct VariableLayout {
  struct Entry {
    std::string path;
    Meta meta;
    Category category;
    ByteOffset at;
  };
  std::vector<Entry> entries;
  Bytes bytes = 0;
  const Entry* find(const std::string& path) const;
};
VariableLayout layout_variables(const std::vector<GraphVariable>& variables, Bytes alignment);

struct Step {
  NodeId node;
  std::vector<ByteOffset> in, out;  // as the node's in and out
  ByteOffset workspace_at = 0;
};

// A value that is in host memory between two steps; as a Stay, but in steps of the plan.
struct HostStay {
  ValueId value;
  int out_after, out_until, in_from, in_before;
  ByteOffset from, to;  // where it lies before and behind
  ByteOffset host_at;   // in the part of host memory that plans have for this
};

using Categories = std::array<Bytes, kCategories>;

// What is computed a second time, in all trips.
struct Recomputed {
  int64_t values = 0;
  Bytes bytes = 0;
  double ms = 0;
};

// A value that is live at the fullest step, for messages and reports.
struct LiveValue {
  std::string path, op;
  Meta meta;
  Category category;
  Bytes bytes;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<ByteOffset> variable_at, input_at, keep_at;  // as in the graph
  Bytes alignment = 64;
  Bytes arena = 0;       // bytes of the reservation
  Bytes persistent = 0;  // of the arena: variables
  Bytes bound = 0;       // the most bytes live at once in this schedule
  Bytes floor = 0;  // persistent + the largest single step's own operands: no schedule goes below
  Categories at_peak{};  // live bytes by category at the fullest step; the sum is `bound`
  int peak_step = -1;
  double ms = 0;  // predicted time of a step
  Recomputed recomputed;
  std::vector<HostStay> stays;      // by in_before
  Bytes away = 0;                   // of host memory for them, bodies' included
  std::string numerics;             // hash of all numerics keys and of the backend's, 16 hex digits
  std::string kernels;              // the same without the backend's
  std::vector<LiveValue> culprits;  // the largest transient values at the fullest step
  // Of each loop's body, as in the graph. Its offsets count from the same arena's start; its own
  // part is [persistent, arena), the loop step's workspace. Sliced inputs and stacked values: where
  // the first trip has them.
  std::vector<Plan> loops;
};

// Lays out a step: lifetimes, in-place outputs, addresses. Throws InternalError when a drop is not
// possible.
Plan make_plan(const Graph& graph, const GraphFacts& facts, const VariableLayout& layout,
               Bytes alignment, const Decision& decision = {});

// Replays the plan symbolically, without looking at how it was made; throws InternalError naming
// the first step that reads a lost value, writes outside the arena or overlaps what it must not.
void validate(const Graph& graph, const Plan& plan, const GraphFacts& facts);

std::string print(const Graph& graph,
                  const Plan& plan);  // one line per step, for golden tests and diffs

}  // namespace pl
