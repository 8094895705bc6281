// Problem: all that the search sees of a step. Nodes in a fixed base order over values with sizes;
// no ops, no kernels, no addresses. A decision is a set of Drops; lower() turns it into an order of
// steps, evaluate() gives that order's exact bytes and time, lay_out() its blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "op/op.h"
#include "plan/storage.h"

namespace pl {

struct Problem {
  struct Value {
    Bytes bytes = 0;       // a grant; 0 for what takes no transient bytes (variables)
    int producer = -1;     // node; -1: there before the first node
    int replaced_by = -1;  // the node that overwrites its bytes (a variable's update): no step
                           // reads it afterwards; -1: none
    bool keep = false;     // still readable behind the last step
    int release = -1;      // behind this node no copy made by then is read: it is computed again
                           // (checkpointing by hand, plan/remat.h); -1: held as long as need be
  };
  struct Node {
    double ms = 0;
    Bytes workspace = 0;             // a grant, live during the node
    bool rerun = true;               // may run a second time (no effects)
    std::vector<int> reads, writes;  // values, each listed once
    // (index into reads, index into writes): that write may take the bytes of that read if its copy
    // dies here. For each write the first that fits.
    std::vector<InOut> in_place;
    uint64_t kind = 0;  // equal for nodes that do the same on the same shapes; 0: unknown
  };
  std::vector<Value> values;
  std::vector<Node> nodes;  // in base order
};

// `value` is not held up to its use by node `at`; it is computed again just before.
struct Drop {
  int value, at;
  // Computed again there even if neither `at` nor its bay reads it, and held from there on: for
  // later uses, or because it is kept. Otherwise a drop that nobody asks for does nothing.
  bool early = false;
  auto operator<=>(const Drop&) const = default;
};
using Drops = std::vector<Drop>;  // sorted, unique

// The steps as node ids, some more than once. Each dropped value is computed again in the bay
// before the node that uses it, and so are those of its inputs that are dropped there too; likewise
// a value that was released and is read again. Nothing
// when an effect would run twice, a replaced value be read, or the steps exceed three times the
// nodes.
std::optional<std::vector<int>> lower(const Problem& problem, const Drops& drops);

struct Evaluation {
  Bytes peak = 0;  // the most transient bytes live at once
  double ms = 0;
  std::vector<Bytes> live;  // at each step
};
Evaluation evaluate(const Problem& problem, std::span<const int> steps);

// Blocks of the transient part. A copy of a value lives from its write to its last read before the
// next write of that value; values without a producer are there from step 0, the last copy of a
// kept value stays to the last step.
struct StepBlocks {
  std::vector<int> reads, writes;  // block ids as the node's reads and writes; -1: no bytes
  int workspace = -1;
};
struct Layout {
  std::vector<StorageBlock> blocks;  // `at` is unset; assign_addresses fills it
  std::vector<StepBlocks> steps;
  std::vector<int> source_block;  // per value: its first block if it has no producer, else -1
  std::vector<int> final_block;   // per value: its block behind the last step if kept, else -1
};
Layout lay_out(const Problem& problem, std::span<const int> steps);

// Transient bytes of these steps once every block has its address.
Bytes height_of(const Problem& problem, std::span<const int> steps);

// No order of these nodes, repeated or not, has a lower peak.
Bytes lower_bound(const Problem& problem);

// One entry of the pool.
struct Candidate {
  Drops drops;
  Bytes bytes = 0;  // height after addresses
  Bytes peak = 0;   // most bytes live at once
  double ms = 0;
};

struct SearchOptions {
  int effort = 1;              // a finer ladder; never a clock
  std::optional<Bytes> bound;  // lower_bound of the problem, where it is known already
};

// All plans worth having, bytes descending and time ascending; the first drops nothing, unless
// values are released, when a drop may save time. Knows neither a budget nor a clock: equal
// problems give equal pools.
std::vector<Candidate> search(const Problem& problem, const SearchOptions& options = {});

}  // namespace pl
