#include "plan/validate_stays.h"

#include <algorithm>

namespace pl {

StaysReplay::StaysReplay(const Graph& graph, const Plan& plan, Fail require)
    : graph_(graph), plan_(plan), require_(std::move(require)) {}

Bytes StaysReplay::bytes_of(const HostStay& stay) const {
  const Bytes bytes = graph_.values[static_cast<size_t>(stay.value)].meta.bytes();
  return (bytes + plan_.alignment - 1) / plan_.alignment * plan_.alignment;
}

void StaysReplay::check_shape(Bytes inside) const {
  require_(inside <= plan_.away, "the plan has less host memory than a loop's body");
  const int steps = static_cast<int>(plan_.steps.size());
  for (const HostStay& stay : plan_.stays) {
    require_(stay.value >= 0 && static_cast<size_t>(stay.value) < graph_.values.size(),
             "a stay of no value");
    require_(graph_.values[static_cast<size_t>(stay.value)].variable < 0, "a variable leaves");
    require_(0 <= stay.out_after && stay.out_after <= stay.out_until &&
                 stay.out_until < stay.in_from && stay.in_from <= stay.in_before &&
                 stay.in_before < steps,
             "a stay ends before it begins");
    require_(stay.host_at >= inside && stay.host_at % plan_.alignment == 0 &&
                 stay.host_at + bytes_of(stay) <= plan_.away,
             "a stay lies outside of its part of host memory");
    for (ByteOffset at : {stay.from, stay.to})
      require_(
          at >= plan_.persistent && at % plan_.alignment == 0 && at + bytes_of(stay) <= plan_.arena,
          "a value leaves or comes back outside the arena");
  }
}

std::vector<StaysReplay::Event> StaysReplay::before(int step) {
  std::erase_if(moving_, [&](const Moving& moving) {
    return moving.out && moving.stay->out_until == step - 1;
  });
  std::vector<Event> events;
  for (const HostStay& stay : plan_.stays) {
    if (stay.in_from != step) continue;
    require_(std::find(on_host_.begin(), on_host_.end(), &stay) != on_host_.end(),
             "a value comes back that never left");
    written(stay.to, stay.to + bytes_of(stay));
    events.push_back({Event::What::arriving, &stay});
    moving_.push_back({&stay, false});
  }
  for (const HostStay& stay : plan_.stays) {
    if (stay.in_before != step) continue;
    events.push_back({Event::What::arrived, &stay});
    std::erase_if(moving_, [&](const Moving& moving) { return moving.stay == &stay; });
    std::erase(on_host_, &stay);
  }
  return events;
}

std::vector<const HostStay*> StaysReplay::behind(int step) const {
  std::vector<const HostStay*> list;
  for (const HostStay& stay : plan_.stays)
    if (stay.out_after == step) list.push_back(&stay);
  return list;
}

void StaysReplay::sent(const HostStay& stay) {
  for (const HostStay* other : on_host_)
    require_(stay.host_at + bytes_of(stay) <= other->host_at ||
                 other->host_at + bytes_of(*other) <= stay.host_at,
             "two values lie in the same place of host memory");
  on_host_.push_back(&stay);
  moving_.push_back({&stay, true});
}

void StaysReplay::written(ByteOffset begin, ByteOffset end) const {
  for (const Moving& moving : moving_) {
    const ByteOffset at = moving.out ? moving.stay->from : moving.stay->to;
    require_(end <= at || at + bytes_of(*moving.stay) <= begin,
             moving.out ? "bytes are overwritten before they are copied to the host"
                        : "bytes are written while a value comes back there");
  }
}

}  // namespace pl
