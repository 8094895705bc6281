// Counts of heap allocations, by who asked. The command line's malloc hooks (cli/heap_hooks.cc)
// fill them; without the hooks `counting` stays false and the counts zero.
#pragma once

#include <atomic>
#include <cstdint>

namespace pl {

struct HeapCounts {
  int64_t ours = 0;
  int64_t library = 0;  // by other modules: oneDNN, libgomp, ...
};

struct HeapCounters {
  std::atomic<bool> counting{false};
  std::atomic<int64_t> ours{0}, library{0};
};

HeapCounters& heap_counters();
HeapCounts heap_counts();

}  // namespace pl
