#include "train/footprint.h"

#include <algorithm>

namespace pl {
namespace {

// Measured on x86-64 Linux with scripts/measure-footprint, which prints how far they are off
// elsewhere. Of a file that was just written the system keeps larger pieces, and a program copied a
// moment ago holds up to 0.4 MiB more than an old one: the figures are for that case.
constexpr Bytes kBase = 9250 * kKiB;         // program, C++ runtime, and the team's first thread
constexpr Bytes kLibrary = 900 * kKiB;       // oneDNN's own state and what all its ops run
constexpr Bytes kPerThread = 11 * kKiB;      // touched stack and per-thread heap
constexpr Bytes kPerLibraryOp = 700 * kKiB;  // code pages that running it touches
constexpr Bytes kBfloat16 = 280 * kKiB;      // more of it for 16-bit operands
constexpr Bytes kNarrow = 3700 * kKiB;       // more of oneDNN's code on CPUs without AVX-512
constexpr Bytes kPerNode = 3650;             // graph, facts, plan, executor
constexpr Bytes kPerFusedNode = kKiB;        // what its tracing left of the heap in use
// Before the arena is filled there is a peak of loading the program and one of preparing kernels,
// which backend/cpu/code_pages.h bounds. A small arena fits below them.
constexpr Bytes kLoadPeak = 20 * kMiB + 560 * kKiB;
constexpr Bytes kPrepareBase = 16100 * kKiB;

}  // namespace

Bytes fixed_bytes(const FootprintFacts& facts) {
  // Each kernel's figure is a bound of its own; together they share pages.
  const Bytes growing = kPerThread * facts.threads + kPerNode * static_cast<Bytes>(facts.nodes) +
                        kPerFusedNode * static_cast<Bytes>(facts.fused_nodes) +
                        facts.kernel_bytes * 13 / 16 + facts.source_bytes;
  Bytes library = 0;
  if (facts.library_ops > 0)
    library = kLibrary + kPerLibraryOp * static_cast<Bytes>(facts.library_ops) +
              (facts.bfloat16 ? kBfloat16 : 0) + (facts.narrow_simd ? kNarrow : 0);
  const Bytes running = kBase + library + growing + facts.transient_bytes;
  const Bytes early = std::max(kLoadPeak, kPrepareBase + growing);
  return std::max(running, early - facts.arena);
}

}  // namespace pl
