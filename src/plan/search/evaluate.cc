// evaluate(): the exact live bytes of an order of steps, in one walk from the last step to the
// first. Going backwards, the values that a later step reads from the copy that is there now are
// known, so that last uses, and with them the places where a write takes a read's bytes, need no
// second pass.
#include <algorithm>

#include "plan/search/flat.h"

namespace pl {

// For each write the first pair that fits; a read serves one write.
Bytes Scorer::taken_over(const Flat::Walk& walk) {
  const InOut* pair = flat_.pair_list.data() + walk.pairs;
  const InOut* end = flat_.pair_list.data() + walk.pairs_end;
  if (walk.one_output) {
    for (; pair != end; ++pair)
      if (!needed_[index(pair->in)]) return flat_.bytes[index(pair->out)];
    return 0;
  }
  ++stamp_;
  Bytes bytes = 0;
  for (; pair != end; ++pair) {
    if (needed_[index(pair->in)] || taken_in_[index(pair->in)] == stamp_ ||
        taken_in_[index(pair->out)] == stamp_)
      continue;
    taken_in_[index(pair->in)] = taken_in_[index(pair->out)] = stamp_;
    bytes += flat_.bytes[index(pair->out)];
  }
  return bytes;
}

Score Scorer::score(std::span<const int> steps, Bytes target, std::vector<Bytes>* live) {
  needed_ = flat_.keep;
  walked_ += static_cast<int64_t>(steps.size());
  if (live) live->assign(std::max<size_t>(steps.size(), 1), 0);
  Score score;
  uint8_t* needed = needed_.data();
  const Flat::Touch* touches = flat_.touches.data();
  Bytes after = flat_.kept_bytes;  // of the values needed behind the step
  for (size_t s = steps.size(); s-- > 0;) {
    const Flat::Walk& walk = flat_.walks[index(steps[s])];
    Bytes before = after;
    Bytes here = after + walk.workspace;
    if (walk.pairs != walk.pairs_end) here -= taken_over(walk);
    // Without branches: whether a value is needed is hard to predict.
    for (int t = walk.first; t < walk.reads; ++t) {
      const Flat::Touch& touch = touches[t];
      const Bytes held = touch.bytes & -static_cast<Bytes>(needed[touch.value]);
      before -= held;
      here += touch.bytes - held;
      needed[touch.value] = 0;
    }
    for (int t = walk.reads; t < walk.end; ++t) {
      const Flat::Touch& touch = touches[t];
      const Bytes more = touch.bytes & (static_cast<Bytes>(needed[touch.value]) - 1);
      here += more;
      before += more;
      needed[touch.value] = 1;
    }
    if (s == 0) here += flat_.unread_source_bytes;
    score.peak = std::max(score.peak, here);
    if (here > target) score.excess += static_cast<double>(here) - static_cast<double>(target);
    score.ms += walk.ms;
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
