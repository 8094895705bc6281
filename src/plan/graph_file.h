// A bare scheduling problem from a file, and its answer: `plimsoll plan --graph FILE`. No kernels,
// no in-place, no split: recompute and addresses only. The file is hostile until it is read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "plan/problem.h"

namespace pl {

// A problem whose variables lie at the bottom of the arena. Numbers of values are those of the
// file; the written version of a persistent value has a number behind them.
struct GraphFile {
  Problem problem;
  std::vector<std::string> names;         // per node
  std::vector<int> number;                // per value of the problem: its number in the file
  std::vector<ByteOffset> persistent_at;  // per value of the problem; -1: transient
  Bytes persistent = 0;
};

// Throws DataError that names `what` and the place for anything but
//   {"values":[{"bytes":B,"persistent":false}, ...], "nodes":[{"name":"n","ms":T,"reads":[..],
//    "writes":[..],"workspace_bytes":0,"recompute":true}, ...], "keep":[..]}
// with nodes in an order in which they can run. Bytes are taken as they are. A value that no node
// writes and that is not persistent is an input: there from the start, to its last use. A node that
// writes a persistent value is an effect and never runs twice.
GraphFile read_graph(std::string_view text, std::string_view what);

struct GraphAnswer {
  bool fits = true;
  Json json;         // the object of `plan --graph`
  std::string text;  // the same for people
};
GraphAnswer plan_graph(const GraphFile& file, std::string_view name, std::optional<Bytes> budget,
                       bool frontier);

}  // namespace pl
