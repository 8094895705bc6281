// Parallel loops on the one libgomp team. Ranges depend on the size and the team alone, never on
// load, so that results do not either. Small loops stay in plain C++ on the calling thread:
// entering the team costs microseconds, and `if()` or a changing team size makes libgomp allocate.
#pragma once

#include <omp.h>

#include <cstdint>

namespace pl {

// Below this much work (in elements of a cheap loop) a loop is not worth the team.
inline constexpr int64_t kParallelGrain = 16 * 1024;

// Calls body(begin, end) on disjoint ranges that cover [0, count). `work` is the cost of the whole
// loop in cheap elements. Range edges are multiples of `multiple`.
template <class Body>
void parallel_ranges(int threads, int64_t count, int64_t work, const Body& body,
                     int64_t multiple = 1) {
  if (threads <= 1 || work < kParallelGrain || count <= multiple) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  const int64_t blocks = (count + multiple - 1) / multiple;
#pragma omp parallel
  {
    const int64_t team = omp_get_num_threads();
    const int64_t rank = omp_get_thread_num();
    const int64_t begin = blocks * rank / team * multiple;
    int64_t end = blocks * (rank + 1) / team * multiple;
    if (end > count) end = count;
    if (begin < end) body(begin, end);
  }
}

}  // namespace pl
