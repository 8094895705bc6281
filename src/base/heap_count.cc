#include "base/heap_count.h"

namespace pl {

HeapCounters& heap_counters() {
  static constinit HeapCounters counters;
  return counters;
}

HeapCounts heap_counts() { return {heap_counters().ours.load(), heap_counters().library.load()}; }

}  // namespace pl
