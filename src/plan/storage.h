// Which values share bytes, and for how long. Derived after the order is fixed.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace pl {

// A run of bytes in the transient part of the arena: live in the closed interval [start, end] of
// steps.
struct Block {
  int start, end;
  Bytes bytes;  // rounded up to a grant
  ByteOffset at = -1;
};

struct Storage {
  std::vector<NodeId> order;            // the node of each step: all nodes but aliases
  std::vector<int> block_of;            // per value: its block, or -1 for variables
  std::vector<VariableId> variable_of;  // per value: the variable whose bytes it is, or -1
  std::vector<Block> blocks;            // values first, then workspaces
  std::vector<int> workspace_block;     // per step, or -1
  std::vector<ValueId> first_value;  // per block: the value that opened it, or -1 for a workspace
  std::vector<ValueId> dying_value;  // per block: the last value written to it
};

Storage derive_storage(const Graph& graph, std::span<const Facts> facts, Bytes alignment);

// Gives every block an offset from 0; returns the height. More effort searches longer for a lower
// one. See address.cc.
Bytes assign_addresses(std::vector<Block>& blocks, int steps, int effort = 1);

// Live transient bytes at each step (one entry when there are no steps).
std::vector<Bytes> live_bytes(const std::vector<Block>& blocks, int steps);

}  // namespace pl
