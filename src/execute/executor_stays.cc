// Values in host memory between two steps, as copies around the steps. Whatever runs as one piece
// (a recording, a single launch) ends with nothing on its way: run() joins.
#include "base/error.h"
#include "execute/executor.h"

namespace pl {

void Executor::bind_stays(const Graph& graph, const Plan& plan, std::vector<Bound>& steps) {
  if (plan.stays.empty()) return;
  work_ = device_ ? device_work(*device_) : nullptr;
  check(work_ && arena_.away, "values leave only where there is host memory for them");
  using What = Bound::Copy::What;
  // Waits for what leaves come first: what comes back may take its place.
  for (const What what : {What::waits_away, What::brings, What::waits_back, What::sends})
    for (size_t i = 0; i < plan.stays.size(); ++i) {
      const HostStay& stay = plan.stays[i];
      const Bytes bytes = graph.values[index(stay.value)].meta.bytes();
      const bool leaves = what == What::sends || what == What::waits_away;
      used_away_ = std::max(used_away_, stay.host_at + align_up(bytes, alignment_));
      const Bound::Copy copy{what, stays_ + i, grant(leaves ? stay.from : stay.to, bytes),
                             arena_.away + stay.host_at, bytes};
      switch (what) {
        case What::sends:
          steps[index(stay.out_after)].behind.push_back(copy);
          break;
        case What::waits_away:
          steps[index(stay.out_until) + 1].before.push_back(copy);
          break;
        case What::brings:
          steps[index(stay.in_from)].before.push_back(copy);
          break;
        case What::waits_back:
          steps[index(stay.in_before)].before.push_back(copy);
          break;
      }
    }
  stays_ += plan.stays.size();
}

void Executor::run_copies(const std::vector<Bound::Copy>& copies) {
  using What = Bound::Copy::What;
  for (const Bound::Copy& copy : copies) switch (copy.what) {
      case What::sends:
        work_->send_away(copy.stay, copy.host, copy.arena, copy.bytes);
        break;
      case What::waits_away:
        work_->wait_away(copy.stay);
        break;
      case What::brings:
        work_->bring_back(copy.stay, copy.arena, copy.host, copy.bytes);
        break;
      case What::waits_back:
        work_->wait_back(copy.stay);
        break;
    }
}

}  // namespace pl
