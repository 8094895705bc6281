// What the kernels of recurrent ops are handed: plain ones a sample, SIMD ones all samples and
// packed weights.
#pragma once

#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
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

// u (H, gates * H) for products h x u: [panel][k][gate][unit], `panel` units or what is left of
// them; zeros behind the last unit.
template <class T>
void pack_weights(int threads, const T* u, Dim units, Dim gates, Dim panel, float* to) {
  const Dim padded = padded_units(units), panels = (padded + panel - 1) / panel;
  parallel_ranges(threads, panels, packed_weights(units, gates), [&](Dim begin, Dim end) {
    float* next = to + begin * panel * gates * units;
    for (Dim j = begin * panel; j < std::min(padded, end * panel); j += panel) {
      const Dim columns = std::min(panel, padded - j), count = std::min(columns, units - j);
      for (Dim row = 0; row < units * gates; ++row, next += columns) {
        const T* from = u + row * units + j;
        for (Dim i = 0; i < count; ++i) next[i] = static_cast<float>(from[i]);
        for (Dim i = count; i < columns; ++i) next[i] = 0;
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

// One sample's part of a call's inputs or outputs; null where an operand is absent.
template <class T>
struct SampleOperands {
  const RecurrentForm& f;
  void* const* operands;
  Dim sample;

  T* weights(int at) const { return recurrent_operand<T>(operands, at); }
  T* steps(int at, Dim factor = 1) const { return part(at, f.steps * factor * f.units); }
  T* state(int at, Dim factor = 1) const { return part(at, factor * f.units); }
  const uint8_t* mask() const {
    return f.mask < 0 ? nullptr : recurrent_operand<uint8_t>(operands, f.mask) + sample * f.steps;
  }
  // Zeros where it is absent.
  void copy_state(int at, T* to) const {
    const T* from = state(at);
    for (Dim j = 0; j < f.units; ++j) to[j] = from ? from[j] : T(0);
  }

 private:
  T* part(int at, Dim size) const {
    return at < 0 ? nullptr : recurrent_operand<T>(operands, at) + sample * size;
  }
};

// A plain kernel: body(inputs, outputs, scratch) for each sample, `scratch` elements of a thread.
template <class T, class Body>
std::unique_ptr<Kernel> sample_by_sample(const RecurrentForm& form, int threads, Dim scratch,
                                         Body body) {
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const Dim work = form.batch * form.steps * form.units * form.units;
        parallel_ranges(threads, form.batch, work, [&](Dim begin, Dim end) {
          T* own = static_cast<T*>(workspace) + omp_get_thread_num() * scratch;
          for (Dim b = begin; b < end; ++b)
            body(SampleOperands<T>{form, in, b}, SampleOperands<T>{form, out, b}, own);
        });
      },
      threads * scratch * static_cast<Bytes>(sizeof(T)));
}

struct PackedCall {
  Dim gates;
  int u;  // place of the weights
  bool transposed;
  Dim states;  // padded rows of units that a sample keeps
  bool fuses;
  Dim panel = kPanelUnits;  // of weights that are not transposed
};
// A SIMD kernel: `own` adds the op's operands to those that all have, `run` takes samples
// [begin, end) through all steps.
template <class T, class Own, class Run>
std::unique_ptr<Kernel> packed_kernel(const RecurrentForm& form, int threads,
                                      const PackedCall& call, Own own, Run run) {
  const Dim packed = packed_weights(form.units, call.gates);
  const Dim states = call.states * padded_units(form.units) * form.batch;
  auto kernel = make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        float* space = static_cast<float*>(workspace);
        const T* u = recurrent_operand<T>(in, call.u);
        if (call.transposed)
          pack_transposed(threads, u, form.units, call.gates, space);
        else
          pack_weights(threads, u, form.units, call.gates, call.panel, space);
        RecurrentData<T> d{.f = form,
                           .z = recurrent_operand<T>(in, 0),
                           .gates = nullptr,
                           .bias = recurrent_operand<float>(in, form.bias),
                           .h0 = recurrent_operand<T>(in, form.h0),
                           .c0 = recurrent_operand<T>(in, form.c0),
                           .dh = recurrent_operand<T>(in, form.dh),
                           .dlast_h = recurrent_operand<T>(in, form.dlast_h),
                           .dlast_c = recurrent_operand<T>(in, form.dlast_c),
                           .mask = recurrent_operand<uint8_t>(in, form.mask),
                           .packed = space,
                           .state = space + packed};
        own(in, out, d);
        parallel_ranges(threads, form.batch, form.batch * form.steps * form.units * form.units,
                        [&](Dim begin, Dim end) { run(d, begin, end); });
      },
      (packed + states) * static_cast<Bytes>(sizeof(float)));
  kernel->key = call.fuses ? "fused" : "apart";
  return kernel;
}

}  // namespace pl::cpu
