// evaluate(): the exact live bytes of an order of steps, in one walk from the last step to the
// first. Going backwards, the values that a later step reads from the copy that is there now are
// known, so that last uses, and with them the places where a write takes a read's bytes, need no
// second pass.
#include <algorithm>

#include "plan/search/flat.h"

namespace pl {

Score Scorer::score(std::span<const int> steps, Bytes target, std::vector<Bytes>* live) {
  needed_ = flat_.keep;
  walked_ += static_cast<int64_t>(steps.size());
  if (live) live->assign(std::max<size_t>(steps.size(), 1), 0);
  Score score;
  Bytes after = flat_.kept_bytes;  // of the values needed behind the step
  for (size_t s = steps.size(); s-- > 0;) {
    const int node = steps[s];
    Bytes before = after;
    Bytes here = after + flat_.workspace[index(node)];
    const auto pairs = flat_.pairs(node);
    if (!pairs.empty()) {
      ++stamp_;
      for (const InOut& pair : pairs) {
        if (needed_[index(pair.in)] || taken_in_[index(pair.in)] == stamp_ ||
            taken_in_[index(pair.out)] == stamp_)
          continue;
        taken_in_[index(pair.in)] = taken_in_[index(pair.out)] = stamp_;
        here -= flat_.bytes[index(pair.out)];
      }
    }
    for (int value : flat_.writes(node)) {
      const Bytes bytes = flat_.bytes[index(value)];
      if (needed_[index(value)])
        before -= bytes;
      else
        here += bytes;
      needed_[index(value)] = 0;
    }
    for (int value : flat_.reads(node)) {
      if (needed_[index(value)]) continue;
      needed_[index(value)] = 1;
      here += flat_.bytes[index(value)];
      before += flat_.bytes[index(value)];
    }
    if (s == 0) here += flat_.unread_source_bytes;
    score.peak = std::max(score.peak, here);
    if (here > target) score.excess += static_cast<double>(here) - static_cast<double>(target);
    score.ms += flat_.ms[index(node)];
    if (live) (*live)[s] = here;
    after = before;
  }
  if (steps.empty()) {
    // A kept value without producer is in kept_bytes.
    score.peak = flat_.kept_bytes + flat_.unread_source_bytes;
    if (live) live->front() = score.peak;
  }
  return score;
}

Evaluation evaluate(const Problem& problem, std::span<const int> steps) {
  const Flat flat(problem);
  Scorer scorer(flat);
  Evaluation result;
  const Score score = scorer.score(steps, 0, &result.live);
  result.peak = score.peak;
  result.ms = score.ms;
  return result;
}

}  // namespace pl
