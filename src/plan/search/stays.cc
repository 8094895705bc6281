// Stays: when values that leave are copied out and back. Copies run beside the steps, one after
// another in each direction. A value is copied out as soon as its last use before the gap is done,
// and back as late as its next use needs, so that no step waits where the gap is long enough.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/search/flat.h"

namespace pl {
namespace {

constexpr int kRounds = 4;  // of leaving out gaps that turn out too short

bool any_away(std::span<const Drop> drops) {
  return std::any_of(drops.begin(), drops.end(), [](const Drop& drop) { return drop.away; });
}

}  // namespace

double Scorer::copy_ms(int value) const {
  return flat_.copies.begin_ms +
         static_cast<double>(flat_.bytes[index(value)]) / flat_.copies.bytes_per_ms;
}

// The gaps of away drops, as stays that begin behind the last step that touches the value and end
// at the one that reads it next. By that step.
void Scorer::find_stays(std::span<const Drop> drops, std::span<const int> steps,
                        std::vector<Stay>& stays) {
  touched_.assign(index(flat_.values), -1);
  wanted_at_.assign(index(flat_.values), -1);
  stays.clear();
  int next = 0;  // the node whose bay, or itself, a step is
  size_t drop = 0;
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    for (; drop < drops.size() && drops[drop].at <= next; ++drop)
      if (drops[drop].away && flat_.leaves[index(drops[drop].value)])
        wanted_at_[index(drops[drop].value)] = drops[drop].at;
    const int node = steps[index(s)];
    const Flat::Walk& walk = flat_.walks[index(node)];
    for (int t = walk.reads; t < walk.end; ++t) {
      const int value = flat_.touches[index(t)].value;
      if (wanted_at_[index(value)] == next) {
        wanted_at_[index(value)] = -1;
        const int from = touched_[index(value)];
        if (from >= 0 && s - from > 2) stays.push_back({value, from, from, s, s});
      }
      touched_[index(value)] = s;
    }
    for (int t = walk.first; t < walk.reads; ++t)
      touched_[index(flat_.touches[index(t)].value)] = s;
    if (node == next) ++next;
  }
}

// Sets out_until, and begins_: when each step begins.
void Scorer::send_out(std::span<const int> steps, std::vector<Stay>& stays) {
  order_.resize(stays.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return stays[a].out_after < stays[b].out_after; });
  out_ends_.assign(stays.size(), 0);
  begins_.resize(steps.size() + 1);
  double now = 0, free = 0;
  auto at = order_.begin();
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    if (flat_.joins[index(steps[index(s)])]) now = std::max(now, free);
    begins_[index(s)] = now;
    now += flat_.walks[index(steps[index(s)])].ms;
    for (; at != order_.end() && stays[*at].out_after == s; ++at)
      out_ends_[*at] = free = std::max(now, free) + copy_ms(stays[*at].value);
    if (flat_.joins[index(steps[index(s)])]) now = std::max(now, free);
  }
  begins_.back() = now;
  for (size_t i = 0; i < stays.size(); ++i) {
    const auto behind =
        std::lower_bound(begins_.begin() + stays[i].out_after + 1, begins_.end() - 1, out_ends_[i]);
    stays[i].out_until = static_cast<int>(behind - begins_.begin()) - 1;
  }
}

// Sets in_from, from the last stay to the first. No copy goes on where steps join.
void Scorer::bring_in(std::span<const int> steps, std::vector<Stay>& stays) {
  double next = begins_.back();
  auto joined = [&](int s) {
    return flat_.joins[index(steps[index(s)])] || flat_.joins[index(steps[index(s) - 1])];
  };
  for (size_t i = stays.size(); i-- > 0;) {
    Stay& stay = stays[i];
    double end = std::min(begins_[index(stay.in_before)], next);
    stay.in_from = stay.in_before;
    for (bool fits = false; !fits;) {
      const double begin = end - copy_ms(stay.value);
      fits = true;
      while (stay.in_from > 0 && begins_[index(stay.in_from)] > begin && fits) {
        if (joined(stay.in_from) && begins_[index(stay.in_from)] < end) {
          end = begins_[index(stay.in_from)];
          fits = false;
        } else {
          --stay.in_from;
        }
      }
      if (fits) next = begin;
    }
  }
}

void Scorer::schedule(std::span<const Drop> drops, std::span<const int> steps,
                      std::vector<Stay>& stays) {
  stays.clear();
  if (!flat_.marked || !any_away(drops)) return;
  find_stays(drops, steps, stays);
  for (int round = 0; round < kRounds && !stays.empty(); ++round) {
    send_out(steps, stays);
    bring_in(steps, stays);
    const size_t before = stays.size();
    std::erase_if(stays, [](const Stay& stay) { return stay.in_from - stay.out_until < 2; });
    if (stays.size() == before) break;
  }
}

namespace {

// What a step waits for, or begins, in the order in which it does.
struct CopyEvent {
  enum What : uint8_t { left, comes, back, sent };
  int step;
  What what;
  size_t stay;
  auto operator<=>(const CopyEvent&) const = default;
};

}  // namespace

// What happens to copies and steps in time, whatever the schedule was made for.
double Scorer::time(std::span<const int> steps, std::span<const Stay> stays) {
  out_ends_.assign(stays.size(), 0);
  in_ends_.assign(stays.size(), 0);
  std::vector<CopyEvent> events;
  double now = 0, out = 0, in = 0, beside = 0;
  for (size_t i = 0; i < stays.size(); ++i) {
    events.push_back({stays[i].out_until + 1, CopyEvent::left, i});
    events.push_back({stays[i].in_from, CopyEvent::comes, i});
    events.push_back({stays[i].in_before, CopyEvent::back, i});
    events.push_back({stays[i].out_after, CopyEvent::sent, i});
    beside += 2 * flat_.copies.beside_ms * static_cast<double>(flat_.bytes[index(stays[i].value)]);
  }
  std::sort(events.begin(), events.end());
  auto event = events.begin();
  auto due = [&](int s, CopyEvent::What what) {
    return event != events.end() && event->step == s && event->what == what;
  };
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    const bool joins = flat_.joins[index(steps[index(s)])];
    for (; due(s, CopyEvent::left); ++event) now = std::max(now, out_ends_[event->stay]);
    if (joins) now = std::max({now, out, in});
    for (; due(s, CopyEvent::comes); ++event)
      in_ends_[event->stay] = in = std::max(now, in) + copy_ms(stays[event->stay].value);
    for (; due(s, CopyEvent::back); ++event) now = std::max(now, in_ends_[event->stay]);
    now += flat_.walks[index(steps[index(s)])].ms;
    for (; due(s, CopyEvent::sent); ++event)
      out_ends_[event->stay] = out = std::max(now, out) + copy_ms(stays[event->stay].value);
    if (joins) now = std::max({now, out, in});
  }
  return now + beside;
}

Bytes Scorer::most_away(std::span<const Stay> stays) {
  std::vector<std::pair<int, Bytes>> changes;
  for (const Stay& stay : stays) {
    changes.emplace_back(stay.out_after, flat_.bytes[index(stay.value)]);
    changes.emplace_back(stay.in_before, -flat_.bytes[index(stay.value)]);
  }
  std::sort(changes.begin(), changes.end());
  Bytes now = 0, most = 0;
  for (const auto& [step, change] : changes) most = std::max(most, now += change);
  return most;
}

void put_marks(const Flat& flat, std::span<const int> steps, std::span<const Stay> stays,
               std::vector<int>& marked) {
  std::vector<std::pair<int, int>> marks;  // (2 * step, + 1: behind it), value
  for (const Stay& stay : stays) {
    marks.emplace_back(2 * stay.out_until + 1, flat.left(stay.value));
    marks.emplace_back(2 * stay.in_from, flat.comes_back(stay.value));
  }
  std::sort(marks.begin(), marks.end());
  marked.clear();
  auto mark = marks.begin();
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    for (; mark != marks.end() && mark->first <= 2 * s; ++mark) marked.push_back(mark->second);
    marked.push_back(steps[index(s)]);
  }
  check(mark == marks.end(), "a value comes back behind the last step");
}

std::optional<double> Scorer::mark(std::span<const Drop> drops, std::vector<int>& steps) {
  schedule(drops, steps, stays_);
  if (stays_.empty()) return 0.0;
  if (most_away(stays_) > flat_.copies.room) return std::nullopt;
  double sum = 0;
  for (int node : steps) sum += flat_.walks[index(node)].ms;
  const double waits = time(steps, stays_) - sum;
  walked_ += static_cast<int64_t>(2 * steps.size());
  unmarked_.swap(steps);
  put_marks(flat_, unmarked_, stays_, steps);
  return std::max(waits, 0.0);
}

std::vector<Stay> schedule(const Problem& problem, const Drops& drops, std::span<const int> steps) {
  const Flat flat(problem);
  Scorer scorer(flat);
  std::vector<Stay> stays;
  scorer.schedule(placed(drops), steps, stays);
  return stays;
}

std::vector<int> with_marks(const Problem& problem, std::span<const int> steps,
                            std::span<const Stay> stays) {
  if (stays.empty()) return {steps.begin(), steps.end()};
  std::vector<int> marked;
  put_marks(Flat(problem), steps, stays, marked);
  return marked;
}

double time_of(const Problem& problem, std::span<const int> steps, std::span<const Stay> stays) {
  const Flat flat(problem);
  return Scorer(flat).time(steps, stays);
}

Bytes assign_stays(const Problem& problem, std::span<const Stay> stays, int steps,
                   std::vector<ByteOffset>& places) {
  std::vector<StorageBlock> blocks;
  for (const Stay& stay : stays)
    blocks.push_back({stay.out_after, stay.in_before, problem.values[index(stay.value)].bytes});
  const Bytes height = blocks.empty() ? 0 : assign_addresses(blocks, steps);
  places.clear();
  for (const StorageBlock& block : blocks) places.push_back(block.at);
  return height;
}

}  // namespace pl
