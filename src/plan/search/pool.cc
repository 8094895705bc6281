#include "plan/search/pool.h"

#include <algorithm>

namespace pl {

bool Pool::offer(const Choice& choice) {
  // The first entry with a peak at most this one's: the fastest of those that need no more.
  auto at = std::partition_point(entries_.begin(), entries_.end(), [&](const Choice& entry) {
    return entry.score.peak > choice.score.peak;
  });
  if (at != entries_.end() && at->score.ms <= choice.score.ms) return false;
  ++entered_;
  // What needs as much or more and is no faster lies directly before, or is *at with the same peak.
  auto end = at != entries_.end() && at->score.peak == choice.score.peak ? at + 1 : at;
  auto begin = at;
  while (begin != entries_.begin() && (begin - 1)->score.ms >= choice.score.ms) --begin;
  if (begin == end) {
    entries_.insert(begin, choice);
  } else {
    *begin = choice;
    entries_.erase(begin + 1, end);
  }
  return true;
}

}  // namespace pl
