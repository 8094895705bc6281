#include "plan/search/space.h"

#include <algorithm>

namespace pl {
namespace {

constexpr int kRadius = 3;  // of surroundings

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Finds copies and gaps of a view whose steps are set.
class SpaceReading {
 public:
  SpaceReading(const Flat& flat, const std::vector<uint64_t>& kind_of, bool leaving, View& view)
      : flat_(flat),
        kind_of_(kind_of),
        leaving_(leaving),
        view_(view),
        last_event_(index(flat.values), -1),
        coming_(leaving ? index(flat.values) : 0, 0) {}

  void run() {
    make_room();
    int next = 0;
    for (int v = 0; v < flat_.values; ++v)
      if (flat_.producer[index(v)] < 0) start_copy(v, 0);
    for (int s = 0; s < steps(); ++s) {
      const int node = view_.steps[index(s)];
      view_.anchor.push_back(next);
      if (node >= flat_.nodes) {
        mark(node, s);
        continue;
      }
      if (node == next) ++next;
      for (int value : flat_.reads(node)) read(value, s);
      for (int value : flat_.writes(node)) start_copy(value, s);
    }
    for (int v = 0; v < flat_.values; ++v)
      if (flat_.keep[index(v)] && last_event_[index(v)] >= 0) keep(v);
  }

 private:
  int steps() const { return static_cast<int>(view_.steps.size()); }
  void make_room() {
    view_.copy_at.assign(index(flat_.values) + 1, 0);
    for (int v = 0; v < flat_.values; ++v)
      if (flat_.producer[index(v)] < 0) ++view_.copy_at[index(v) + 1];
    for (int node : view_.steps)
      for (int value : flat_.writes(node)) ++view_.copy_at[index(value) + 1];
    for (size_t v = 1; v < view_.copy_at.size(); ++v) view_.copy_at[v] += view_.copy_at[v - 1];
    view_.copies.resize(index(view_.copy_at.back()));
    next_copy_ = view_.copy_at;
  }
  bool droppable(int value) const {
    const int producer = flat_.producer[index(value)];
    return producer >= 0 && flat_.rerun[index(producer)] && flat_.bytes[index(value)] > 0;
  }
  void start_copy(int value, int s) {
    view_.copies[index(next_copy_[index(value)]++)] = {s, s};
    last_event_[index(value)] = s;
  }
  // Where a value has left its copy ends; where it comes back another begins.
  void mark(int mark, int s) {
    for (int value : flat_.reads(mark)) {
      view_.copies[index(next_copy_[index(value)]) - 1].end = s;
      last_event_[index(value)] = s;
    }
    for (int value : flat_.writes(mark)) {
      start_copy(value, s);
      coming_[index(value)] = 1;
    }
  }
  uint64_t role(int value, int at, int reader) const {
    const int producer = flat_.producer[index(value)];
    return mix(mix(producer < 0 ? index(value) : kind_of_[index(producer)],
                   static_cast<uint64_t>(flat_.bytes[index(value)])),
               mix(kind_of_[index(at)], kind_of_[index(reader)]));
  }
  void read(int value, int s) {
    const int from = last_event_[index(value)];
    const int at = view_.anchor[index(s)];
    const bool gap = from < s - 1 && view_.anchor[index(from)] < at;
    if (gap && droppable(value))
      view_.gaps.push_back({value, at, from, s, role(value, at, view_.steps[index(s)])});
    if (leaving_) {
      if (gap && flat_.leaves[index(value)] && !coming_[index(value)])
        view_.far.push_back({value, at, from, s, role(value, at, view_.steps[index(s)])});
      coming_[index(value)] = 0;
    }
    last_event_[index(value)] = s;
    view_.copies[index(next_copy_[index(value)]) - 1].end = s;
  }
  // Held to the end. It can be computed again where nothing is above the target any more.
  void keep(int value) {
    const int from = last_event_[index(value)];
    view_.copies[index(next_copy_[index(value)]) - 1].end = steps() - 1;
    if (!droppable(value) || from >= steps() - 2) return;
    int last_over = steps() - 2;
    while (last_over > from && view_.live[index(last_over)] <= view_.target) --last_over;
    for (int s : {last_over + 1, steps() - 1}) {
      const int at = view_.anchor[index(s)];
      if (view_.anchor[index(from)] < at)
        view_.gaps.push_back({value, at, from, s, role(value, at, at), true});
      if (s == steps() - 1) break;
    }
  }

  const Flat& flat_;
  const std::vector<uint64_t>& kind_of_;
  bool leaving_;
  View& view_;
  std::vector<int> last_event_, next_copy_;  // per value
  std::vector<uint8_t> coming_;              // per value: it came back, and was not read yet
};

}  // namespace

bool View::live_at(int value, int step) const {
  const Copy* begin = copies.data() + copy_at[index(value)];
  const Copy* end = copies.data() + copy_at[index(value) + 1];
  const Copy* at =
      std::partition_point(begin, end, [&](const Copy& copy) { return copy.end < step; });
  return at != end && at->start <= step;
}

int View::last_live_before(int value, int step) const {
  int last = -1;
  for (int c = copy_at[index(value)]; c < copy_at[index(value) + 1]; ++c)
    if (copies[index(c)].start < step) last = std::min(copies[index(c)].end, step - 1);
  return last;
}

Space::Space(const Problem& problem, Bytes known_bound, int64_t effort)
    : flat(problem),
      bound(known_bound),
      kind_of(surroundings(problem, flat)),
      scorer_(flat),
      limit_(effort) {}

bool Space::score(Choice& choice, Bytes target) {
  if (!scorer_.lower(choice.drops, steps_)) return false;
  const std::optional<double> waits_ms = flat.marked ? scorer_.mark(choice.drops, steps_) : 0.0;
  if (!waits_ms) return false;
  choice.score = scorer_.score(steps_, target);
  choice.score.ms += *waits_ms;
  pool.offer(choice);
  return true;
}

const std::vector<int>& Space::steps(const Choice& choice) {
  scorer_.lower(choice.drops, steps_);
  return steps_;
}

View Space::view(const Choice& choice, Bytes target) {
  View view;
  view.drops = view.by_value = choice.drops;
  std::sort(view.by_value.begin(), view.by_value.end());
  view.target = target;
  scorer_.lower(choice.drops, view.steps);
  const std::optional<double> waits_ms = flat.marked ? scorer_.mark(choice.drops, view.steps) : 0.0;
  view.score = scorer_.score(view.steps, target, &view.live);
  view.score.ms += waits_ms.value_or(0);
  view.over.push_back(0);
  for (Bytes live : view.live) view.over.push_back(view.over.back() + (live > target));
  SpaceReading(flat, kind_of, leaving, view).run();
  return view;
}

std::vector<uint64_t> surroundings(const Problem& problem, const Flat& flat) {
  std::vector<uint64_t> now(index(flat.nodes)), next(index(flat.nodes));
  for (size_t n = 0; n < now.size(); ++n)
    now[n] = problem.nodes[n].kind ? mix(problem.nodes[n].kind, 1) : mix(n, 2);
  for (int round = 0; round < kRadius; ++round) {
    for (int n = 0; n < flat.nodes; ++n) {
      uint64_t hash = now[index(n)];
      for (int value : flat.reads(n)) {
        const int producer = flat.producer[index(value)];
        hash = mix(hash, producer < 0 ? 7 : now[index(producer)]);
      }
      uint64_t users = 0;
      for (int value : flat.writes(n))
        for (int user : flat.uses(value)) users += mix(now[index(user)], 3);
      next[index(n)] = mix(hash, users);
    }
    now.swap(next);
  }
  return now;
}

}  // namespace pl
