#include "train/footprint.h"

#include <algorithm>

namespace pl {
namespace {

// Measured on x86-64 Linux with scripts/measure-footprint, which prints how far they are off
// elsewhere. Of a file that was just written the system keeps larger pieces, and a program copied a
// moment ago holds up to 0.4 MiB more than an old one: the figures are for that case.
constexpr Bytes kMargin = 1100 * kKiB;       // about the middle of what is promised, 0 to 2 MiB
constexpr Bytes kBase = 5800 * kKiB;         // C and C++ runtimes, the team's first thread
constexpr Bytes kPerKind = 90 * kKiB;        // pages of our own code that one op's kernel touches
constexpr Bytes kLibrary = 2670 * kKiB;      // oneDNN's own state and what all its ops run
constexpr Bytes kConvolution = 540 * kKiB;   // pages of its code for one kind of convolution
constexpr Bytes kBackwardData = 440 * kKiB;  // more for gradients of inputs
constexpr Bytes kNarrow = 3700 * kKiB;       // more of oneDNN's code on CPUs without AVX-512
constexpr Bytes kPerThread = 11 * kKiB;      // touched stack and per-thread heap
constexpr Bytes kPerNode = 2770;             // graph, facts, plan, executor
constexpr Bytes kPerFusedNode = kKiB;        // what its tracing left of the heap in use
// Before the arena is filled there is a peak of loading the program and one of preparing kernels,
// which backend/cpu/code_pages.h bounds. A small arena fits below them.
constexpr Bytes kLoadPeak = 21 * kMiB + 200 * kKiB;
constexpr Bytes kPrepareBase = 16100 * kKiB;

}  // namespace

Bytes fixed_bytes(const FootprintFacts& facts) {
  // Each kernel's figure is a bound of its own; together they share pages.
  const Bytes growing = kPerThread * facts.threads + kPerNode * static_cast<Bytes>(facts.nodes) +
                        kPerFusedNode * static_cast<Bytes>(facts.fused_nodes) +
                        facts.kernel_bytes * 3 / 4 + facts.source_bytes;
  Bytes code = kPerKind * static_cast<Bytes>(facts.kinds);
  if (facts.library)
    code += kLibrary + kConvolution * static_cast<Bytes>(facts.convolutions) +
            kBackwardData * static_cast<Bytes>(facts.backward_data) +
            (facts.narrow_simd ? kNarrow : 0);
  const Bytes running = kMargin + kBase + code + growing + facts.transient_bytes;
  const Bytes early = std::max(kLoadPeak, kPrepareBase + growing);
  return std::max(running, early - facts.arena);
}

}  // namespace pl
