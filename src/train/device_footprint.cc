#include "train/device_footprint.h"

#include <algorithm>

namespace pl {
namespace {

constexpr Bytes kCode = 4 * kMiB;       // of our own kernels that a step loads
constexpr Bytes kPerKernel = 8 * kKiB;  // of a library's, on average
constexpr Bytes kPerLaunch = 3584;      // of a recorded step; with 5,000 and 9,000 it held 3,000

constexpr Bytes kHostPage = 4 * kKiB, kPageEntry = 8;  // in the device's page tables

}  // namespace

Bytes recording_bytes(size_t launches) { return kPerLaunch * static_cast<Bytes>(launches); }

DeviceBill device_bill(const DeviceFacts& facts) {
  DeviceBill bill{
      .context = facts.held,
      // What was timed is mostly what will run: a run that times calls has the bill of
      // one that knows them.
      .code = std::max(kCode + kPerKernel * static_cast<Bytes>(facts.kernels), facts.loaded),
      .recordings = recording_bytes(facts.launches),
      .page_tables = facts.mapped / kHostPage * kPageEntry};
  const Bytes later = bill.code + bill.recordings + bill.page_tables;
  bill.rounding = align_up(later, facts.granule) - later +
                  align_up(facts.arena - facts.apart, facts.granule) +
                  align_up(facts.apart, facts.granule) - facts.arena;
  return bill;
}

}  // namespace pl
