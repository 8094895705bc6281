#include "train/footprint.h"

#include <algorithm>

namespace pl {
namespace {

// Measured on x86-64 Linux with scripts/measure-footprint, which prints how far they are off
// elsewhere.
constexpr Bytes kMargin = 1300 * kKiB;   // about the middle of what is promised, 0 to 2 MiB
constexpr Bytes kPerThread = 11 * kKiB;  // touched stack and per-thread heap
constexpr Bytes kPerNode = 2770;         // graph, facts, plan, executor
constexpr Bytes kPerFusedNode = kKiB;    // what its tracing left of the heap in use

// What differs with how pages of code come.
struct Code {
  Bytes base;           // C and C++ runtimes, the team's first thread
  Bytes kind;           // pages of our own code that one op's kernel touches
  Bytes library;        // oneDNN's own state and what all its ops run
  Bytes convolution;    // pages of its code for one kind of convolution
  Bytes backward_data;  // more for gradients of inputs
  Bytes narrow;         // more of oneDNN's code on CPUs without AVX-512
  // Before the arena is filled there is a peak of loading the program and one of preparing kernels,
  // which backend/cpu/code_pages.h bounds. A small arena fits below them.
  Bytes load_peak, prepare;
};
constexpr Code kByPage{.base = 3770 * kKiB,
                       .kind = 27 * kKiB,
                       .library = 250 * kKiB,
                       .convolution = 60 * kKiB,
                       .backward_data = 60 * kKiB,
                       .narrow = 1000 * kKiB,
                       .load_peak = 17 * kMiB + 600 * kKiB,
                       .prepare = 13000 * kKiB};
// With neighbours: how many depends on how the file came into the page cache, so this is a bound of
// what was seen, and up to 4 MiB above a run.
constexpr Code kWithNeighbours{.base = 7000 * kKiB,
                               .kind = 90 * kKiB,
                               .library = 2670 * kKiB,
                               .convolution = 540 * kKiB,
                               .backward_data = 440 * kKiB,
                               .narrow = 3700 * kKiB,
                               .load_peak = 22 * kMiB + 700 * kKiB,
                               .prepare = 17600 * kKiB};

}  // namespace

Footprint footprint(const FootprintFacts& facts) {
  // Each kernel's figure is a bound of its own; together they share pages.
  const Bytes growing = kPerThread * facts.threads + kPerNode * static_cast<Bytes>(facts.nodes) +
                        kPerFusedNode * static_cast<Bytes>(facts.fused_nodes) +
                        facts.kernel_bytes * 3 / 4 + facts.source_bytes;
  const Code& of = facts.by_page ? kByPage : kWithNeighbours;
  Bytes code = of.kind * static_cast<Bytes>(facts.kinds);
  if (facts.library)
    code += of.library + of.convolution * static_cast<Bytes>(facts.convolutions) +
            of.backward_data * static_cast<Bytes>(facts.backward_data) +
            (facts.narrow_simd ? of.narrow : 0);
  const Bytes running = kMargin + of.base + code + growing + facts.transient_bytes;
  const Bytes early = std::max(of.load_peak, of.prepare + growing);
  const Bytes fixed = std::max(running, early - facts.arena);
  return {.fixed = fixed, .idle = fixed - running};
}

}  // namespace pl
