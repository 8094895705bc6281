// Times of the kernels of a few early steps.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "train/session.h"

namespace pl {

inline constexpr int64_t kWarmSteps = 2;  // libraries may still settle in these

// Times the kernels of a few steps of the first signature.
class KernelTimer {
 public:
  KernelTimer(Session& session, bool wanted) {
    if (wanted) times_.assign(kTimedSteps, StepTimes(session.executor(0).timed_steps()));
  }
  // Where the next step's times go; null: it is not timed.
  StepTimes* next(size_t signature, int64_t steps_before) {
    if (signature != 0 || steps_before < kWarmSteps || done_ == times_.size()) return nullptr;
    return &times_[done_++];
  }
  // Of each step the second fastest: a median would follow other work on the machine.
  std::vector<double> typical_ms() const {
    std::vector<double> ms;
    if (done_ < kTimedSteps) return ms;
    for (size_t s = 0; s < times_[0].size(); ++s) {
      std::array<int64_t, kTimedSteps> runs{};
      for (size_t r = 0; r < kTimedSteps; ++r) runs[r] = times_[r][s];
      std::nth_element(runs.begin(), runs.begin() + 1, runs.end());
      ms.push_back(static_cast<double>(runs[1]) / 1e6);
    }
    return ms;
  }

 private:
  static constexpr size_t kTimedSteps = 5;  // behind the warm ones

  std::vector<StepTimes> times_;
  size_t done_ = 0;
};

}  // namespace pl
