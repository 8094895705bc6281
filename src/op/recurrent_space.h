// Sizes of what the SIMD kernels of recurrent ops keep in their workspace, in float32 elements.
#pragma once

#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/recurrent.h"

namespace pl::cpu {

// Columns of a panel of transposed weights.
inline constexpr Dim kColumnPanel = 64;

constexpr Dim padded_units(Dim units) { return (units + 15) / 16 * 16; }
// Packed weights (H, gates * H), either way.
constexpr Dim packed_gates(Dim units, Dim gates) { return padded_units(units) * units * gates; }

// Calls pack(panel) for each panel of 16 units; pack(j, columns) for each run of kColumnPanel
// columns or what is left of them.
template <class Pack>
void for_gate_panels(int threads, Dim units, Dim work, const Pack& pack) {
  parallel_ranges(threads, padded_units(units) / 16, work, [&](Dim begin, Dim end) {
    for (Dim panel = begin; panel < end; ++panel) pack(panel);
  });
}
template <class Pack>
void for_column_panels(int threads, Dim units, Dim work, const Pack& pack) {
  const Dim columns = padded_units(units), panels = (columns + kColumnPanel - 1) / kColumnPanel;
  parallel_ranges(threads, panels, work, [&](Dim begin, Dim end) {
    for (Dim panel = begin; panel < end; ++panel) {
      const Dim j = panel * kColumnPanel;
      pack(j, std::min(kColumnPanel, columns - j));
    }
  });
}

}  // namespace pl::cpu
