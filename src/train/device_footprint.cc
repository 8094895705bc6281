#include "train/device_footprint.h"

namespace pl {
namespace {

constexpr Bytes kCode = 4 * kMiB;       // of our own kernels that a step loads
constexpr Bytes kPerKernel = 8 * kKiB;  // of a library's, on average
constexpr Bytes kPerLaunch = 3584;      // of a recorded step; with 5,000 and 9,000 it held 3,000

}  // namespace

Bytes device_fixed_bytes(const DeviceFacts& facts) {
  const Bytes later = kCode + kPerKernel * static_cast<Bytes>(facts.kernels) +
                      kPerLaunch * static_cast<Bytes>(facts.launches);
  const Bytes rounding = align_up(facts.arena - facts.apart, facts.granule) +
                         align_up(facts.apart, facts.granule) - facts.arena;
  return facts.held + align_up(later, facts.granule) + rounding;
}

}  // namespace pl
