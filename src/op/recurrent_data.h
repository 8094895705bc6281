// What the SIMD kernels of recurrent ops are handed, for all samples, and how they pack weights.
#pragma once

#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/recurrent.h"

namespace pl::cpu {

template <class T>
struct RecurrentData {
  const RecurrentForm& f;
  const T* z;       // (B, T, gates * H); a gradient reads gates here
  T* gates;         // the same; a gradient writes dz here; may be z
  T* h = nullptr;   // (B, T, H)
  T* c = nullptr;   // (B, T, H): lstm's cells or gru's inner products
  T* dn = nullptr;  // (B, T, H): of gru's gradient; may be c
  const float* bias = nullptr;
  const T *h0 = nullptr, *c0 = nullptr;
  const T *dh = nullptr, *dlast_h = nullptr, *dlast_c = nullptr;
  const uint8_t* mask = nullptr;
  T *last_h = nullptr, *last_c = nullptr;  // (B, H); of a gradient dh0 and dc0
  const float* packed;                     // weights
  float* state;                            // of each sample
};

// Units of a panel of weights, and columns of a panel of transposed ones.
inline constexpr Dim kPanelUnits = 16, kColumnPanel = 64;

constexpr Dim padded_units(Dim units) { return (units + 15) / 16 * 16; }
// float32 elements of packed weights, either way.
constexpr Dim packed_weights(Dim units, Dim gates) { return padded_units(units) * units * gates; }

// u (H, gates * H) for products h x u: [panel][k][gate][unit]; zeros behind the last unit.
template <class T>
void pack_weights(int threads, const T* u, Dim units, Dim gates, float* to) {
  const Dim panels = padded_units(units) / kPanelUnits;
  parallel_ranges(threads, panels, packed_weights(units, gates), [&](Dim begin, Dim end) {
    float* next = to + begin * kPanelUnits * gates * units;
    for (Dim j = begin * kPanelUnits; j < end * kPanelUnits; j += kPanelUnits) {
      const Dim count = std::min(kPanelUnits, units - j);
      for (Dim row = 0; row < units * gates; ++row, next += kPanelUnits) {
        const T* from = u + row * units + j;
        for (Dim i = 0; i < count; ++i) next[i] = static_cast<float>(from[i]);
        for (Dim i = count; i < kPanelUnits; ++i) next[i] = 0;
      }
    }
  });
}

// Its transpose for products dz x u^T: [panel][k][unit], a panel of kColumnPanel units or what is
// left of them; zeros behind the last unit.
template <class T>
void pack_transposed(int threads, const T* u, Dim units, Dim gates, float* to) {
  const Dim padded = padded_units(units), depth = gates * units;
  const Dim panels = (padded + kColumnPanel - 1) / kColumnPanel;
  parallel_ranges(threads, panels, packed_weights(units, gates), [&](Dim begin, Dim end) {
    for (Dim panel = begin; panel < end; ++panel) {
      const Dim j = panel * kColumnPanel, columns = std::min(kColumnPanel, padded - j);
      float* next = to + j * depth;
      // 16 at a time: the lines being written stay in the first cache.
      for (Dim k = 0; k < depth; k += 16)
        for (Dim i = 0; i < columns; ++i)
          for (Dim m = k; m < std::min(depth, k + 16); ++m)
            next[m * columns + i] =
                j + i < units ? static_cast<float>(u[(j + i) * depth + m]) : 0.0f;
    }
  });
}

// Operand `at`; null where it is absent.
template <class T>
T* recurrent_operand(void* const* in, int at) {
  return at < 0 ? nullptr : static_cast<T*>(in[at]);
}

}  // namespace pl::cpu
