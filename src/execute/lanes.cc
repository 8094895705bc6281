#include "execute/lanes.h"

#include <algorithm>

namespace pl {

Lanes::Lanes(DeviceWork& device)
    : device_(device), last_(static_cast<size_t>(device.lanes()), -1) {}

void Lanes::begin() {
  reads_.clear();
  writes_.clear();
}

void Lanes::reads(const void* at, Bytes bytes) {
  const auto begin = static_cast<Place>(at);
  if (bytes > 0) reads_.push_back({begin, begin + bytes});
}

void Lanes::writes(const void* at, Bytes bytes) {
  const auto begin = static_cast<Place>(at);
  if (bytes > 0) writes_.push_back({begin, begin + bytes});
}

// The segment that begins at `at`, if some segment has it; a segment across is cut there.
std::map<Lanes::Place, Lanes::Segment>::iterator Lanes::cut(Place at) {
  auto above = segments_.lower_bound(at);
  if (above != segments_.end() && above->first == at) return above;
  if (above == segments_.begin()) return above;
  auto below = std::prev(above);
  if (below->second.end <= at) return above;
  Segment rest = below->second;
  below->second.end = at;
  return segments_.emplace_hint(above, at, std::move(rest));
}

// All segments of a span; bytes that no step used yet get one.
template <class Body>
void Lanes::each_segment(const Span& span, const Body& body) {
  cut(span.end);
  auto at = cut(span.begin);
  for (Place place = span.begin; place < span.end;) {
    if (at == segments_.end() || at->first > place) {
      const Place end =
          at == segments_.end() ? span.end : std::min(span.end, at->first);
      at = segments_.emplace_hint(at, place, Segment{.end = end});
    }
    body(at->second);
    place = at->second.end;
    ++at;
  }
}

// That of the step which it depends on last, if nothing came behind that there; else the lane that
// has been idle for longest.
int Lanes::choose_lane(const std::vector<int>& latest) const {
  const auto newest = std::max_element(latest.begin(), latest.end());
  if (*newest >= 0) {
    const auto lane = static_cast<size_t>(newest - latest.begin());
    if (last_[lane] == *newest) return static_cast<int>(lane);
  }
  return static_cast<int>(std::min_element(last_.begin(), last_.end()) - last_.begin());
}

void Lanes::take() {
  const int step = static_cast<int>(steps_.size());
  std::vector<int> latest(last_.size(), -1);  // per lane: of the steps that this one depends on
  auto depend = [&](int on) {
    if (on < 0 || on == step) return;
    int& known = latest[static_cast<size_t>(steps_[static_cast<size_t>(on)].lane)];
    known = std::max(known, on);
  };
  for (const Span& span : reads_)
    each_segment(span, [&](Segment& segment) { depend(segment.writer); });
  for (const Span& span : writes_)
    each_segment(span, [&](Segment& segment) {
      depend(segment.writer);
      for (int reader : segment.readers) depend(reader);
    });
  for (const Span& span : reads_)
    each_segment(span, [&](Segment& segment) {
      if (segment.readers.empty() || segment.readers.back() != step)
        segment.readers.push_back(step);
    });
  for (const Span& span : writes_)
    each_segment(span, [&](Segment& segment) {
      segment.writer = step;
      segment.readers.clear();
    });

  Step made{.lane = choose_lane(latest)};
  const auto mine = static_cast<size_t>(made.lane);
  device_.use_lane(made.lane);
  made.behind = last_[mine] >= 0 ? steps_[static_cast<size_t>(last_[mine])].behind
                                 : std::vector<int>(last_.size(), -1);
  if (last_[mine] >= 0) made.behind[mine] = last_[mine];
  // The newest first: what it came behind need not be waited for.
  std::vector<int> wanted;
  for (int on : latest)
    if (on >= 0) wanted.push_back(on);
  std::sort(wanted.rbegin(), wanted.rend());
  for (int on : wanted) {
    const Step& other = steps_[static_cast<size_t>(on)];
    if (made.behind[static_cast<size_t>(other.lane)] >= on) continue;
    device_.wait(other.mark);
    made.behind[static_cast<size_t>(other.lane)] = on;
    for (size_t lane = 0; lane < last_.size(); ++lane)
      made.behind[lane] = std::max(made.behind[lane], other.behind[lane]);
  }
  last_[mine] = step;
  steps_.push_back(std::move(made));
}

void Lanes::end() { steps_.back().mark = device_.mark(); }

}  // namespace pl
