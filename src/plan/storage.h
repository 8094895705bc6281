// Blocks of the transient part of the arena and their addresses.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "graph/graph.h"

namespace pl {

// A run of bytes, live in the closed interval [start, end] of steps.
struct StorageBlock {
  int start, end;
  Bytes bytes;  // rounded up to a grant
  ByteOffset at = -1;
};

// Gives every block an offset from 0; returns the height. More effort searches longer for a lower
// one. See address.cc.
Bytes assign_addresses(std::vector<StorageBlock>& blocks, int steps, int effort = 1);

// Live transient bytes at each step (one entry when there are no steps).
std::vector<Bytes> live_bytes(const std::vector<StorageBlock>& blocks, int steps);

}  // namespace pl
