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
    uint64_t kind = 0;   // equal for nodes that do the same on the same shapes; 0: unknown
    bool joins = false;  // runs alone: before it and behind it no value is on its way (Stay)
  };
  // The way to another memory, where values may be between two uses: a copy engine for each
  // direction, one copy after another, beside the nodes.
  struct Copies {
    double bytes_per_ms = 0;  // each way; 0: there is no such memory
    double begin_ms = 0;      // of any copy
    double beside_ms = 0;     // that copying a byte, one way, takes from the nodes beside it
    Bytes least = 1;          // smaller values are not worth it
    Bytes room = 0;           // in that memory
  };
  std::vector<Value> values;
  std::vector<Node> nodes;  // in base order
  Copies copies;
};

// `value` is not held up to its use by node `at`; it is computed again just before, or comes back.
struct Drop {
  int value, at;
  // Computed again there even if neither `at` nor its bay reads it, and held from there on: for
  // later uses, or because it is kept. Otherwise a drop that nobody asks for does nothing.
  bool early = false;
  // Copied to the other memory behind its use before, and back in time.
  bool away = false;
  auto operator<=>(const Drop&) const = default;
};
using Drops = std::vector<Drop>;  // sorted, unique

// A value's stay in the other memory, in steps as lower() gives them. Its bytes are live up to and
// with `out_until`, and again, elsewhere, from `in_from` on:
//   out_after <= out_until < in_from <= in_before.
struct Stay {
  int value;
  int out_after;  // behind this step, the last to touch the value before, it is copied out
  int out_until;  // the step behind this one waits until that is done
  int in_from;    // from before this step on it is copied back
  int in_before;  // this step reads it, and waits for it
  auto operator<=>(const Stay&) const = default;
};

// The steps as node ids, some more than once. Each dropped value is computed again in the bay
// before the node that uses it, and so are those of its inputs that are dropped there too; likewise
// a value that was released and is read again. Nothing
// when an effect would run twice, a replaced value be read, or the steps exceed three times the
// nodes.
std::optional<std::vector<int>> lower(const Problem& problem, const Drops& drops);

// When the values of `away` drops leave and come back among these steps: copied out at once, back
// as late as no step has to wait for it, first come, first served. A drop whose gap is too short
// does nothing. By `in_before`.
std::vector<Stay> schedule(const Problem& problem, const Drops& drops, std::span<const int> steps);

// The steps with a mark where a value has left, and where it begins to come back: numbers behind
// the nodes', which evaluate() and lay_out() understand as reading and writing it.
std::vector<int> with_marks(const Problem& problem, std::span<const int> steps,
                            std::span<const Stay> stays);

// How long the steps take with copies beside them; and without stays, the sum of their times.
double time_of(const Problem& problem, std::span<const int> steps, std::span<const Stay> stays);

// Gives every stay a place in the other memory, as `places`; returns the height.
Bytes assign_stays(const Problem& problem, std::span<const Stay> stays, int steps,
                   std::vector<ByteOffset>& places);

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

// No order of these nodes, repeated or not, has a lower peak; nor with stays, where values may
// leave.
Bytes lower_bound(const Problem& problem);

// One entry of the pool.
struct Candidate {
  Drops drops;
  Bytes bytes = 0;  // height after addresses
  Bytes peak = 0;   // most bytes live at once
  double ms = 0;
  std::vector<Stay> stays;  // of away drops
  Bytes away = 0;           // in the other memory, at most
  double waits_ms = 0;      // of `ms`: for copies
};

struct SearchOptions {
  int effort = 1;              // a finer ladder; never a clock
  std::optional<Bytes> bound;  // lower_bound of the problem, where it is known already
  size_t threads = 1;          // that find addresses: what they find is the same
};

// All plans worth having, bytes descending and time ascending; the first drops nothing, unless
// values are released, when a drop may save time. Knows neither a budget nor a clock: equal
// problems give equal pools.
std::vector<Candidate> search(const Problem& problem, const SearchOptions& options = {});

// Further plans, in which values leave; `without` are those that do without. `again`: values may
// also be computed again.
std::vector<Candidate> search_away(const Problem& problem, const std::vector<Candidate>& without,
                                   bool again, size_t threads = 1);

// These drops as a plan, with addresses; nothing where they are not possible or stays find no room.
std::optional<Candidate> try_drops(const Problem& problem, const Drops& drops);
// Each of a list of them, in its place.
std::vector<std::optional<Candidate>> try_each(const Problem& problem, std::span<const Drops> list,
                                               size_t threads = 1);

}  // namespace pl
