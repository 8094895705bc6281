#include "train/footprint.h"

namespace pl {
namespace {

// Measured on x86-64 Linux (scripts/measure-footprint prints them for another system).
constexpr Bytes kBase =
    22 * kMiB;  // program, C++ runtime, the library pages that every run touches
constexpr Bytes kPerThread = 160 * kKiB;  // touched stack, per-thread heap
constexpr Bytes kPerNode = 4 * kKiB;      // graph, facts, plan, executor

}  // namespace

Bytes fixed_bytes(const FootprintFacts& facts) {
  return align_up(kBase + kPerThread * facts.threads + kPerNode * static_cast<Bytes>(facts.nodes) +
                      facts.kernel_bytes + facts.source_bytes,
                  4 * kKiB);
}

}  // namespace pl
