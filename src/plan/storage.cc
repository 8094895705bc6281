#include "plan/storage.h"

#include <algorithm>

namespace pl {

std::vector<Bytes> live_bytes(const std::vector<StorageBlock>& blocks, int steps) {
  // A graph of aliases alone has no steps, but its inputs are there.
  std::vector<Bytes> live(static_cast<size_t>(std::max(steps, 1)) + 1, 0);
  for (const StorageBlock& block : blocks) {
    live[static_cast<size_t>(block.start)] += block.bytes;
    live[static_cast<size_t>(block.end) + 1] -= block.bytes;
  }
  for (size_t s = 1; s < live.size(); ++s) live[s] += live[s - 1];
  live.pop_back();
  return live;
}

}  // namespace pl
