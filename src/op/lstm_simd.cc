// lstm and its gradient, float32 or bfloat16 with states in float32, compiled once for each SIMD
// target.
#include "op/lstm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/lstm_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "op/bfloat_pair.h"
#include "op/kernel.h"
#include "op/recurrent_data.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/recurrent_simd-inl.h"

// Units [j, j + n) of one sample in one step: gates from their sums, then c and h. `sums`: [gate]
// [unit] of the panel; `c_state` holds the old c and gets the new.
template <class T>
HWY_INLINE void lstm_cell(const RecurrentData<T>& d, Dim b, Dim s, Dim j, Dim n, const float* sums,
                          float* h_state, float* c_state) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units;
  const Dim in = (b * f.steps + f.input_at(s)) * 4 * units + j;
  const Dim out = (b * f.steps + f.output_at(s)) * units + j;
  auto gate = [&](Squash kind, Dim g) HWY_ATTR {
    const auto sum = hn::LoadU(Floats(), sums + g * kPanelUnits);
    const auto y = squash_of(kind, hn::Add(load(d.z + in + g * units, n), sum));
    store(y, d.gates + in + g * units, n);
    return y;
  };
  const auto i = gate(f.recurrent_activation, 0), forget = gate(f.recurrent_activation, 1);
  const auto candidate = gate(f.activation, 2), o = gate(f.recurrent_activation, 3);
  const auto old = hn::LoadU(Floats(), c_state + j);
  const auto c = hn::Add(hn::Mul(forget, old), hn::Mul(i, candidate));
  const auto h = hn::Mul(o, squash_of(f.activation, c));
  hn::StoreU(c, Floats(), c_state + j);
  hn::StoreU(h, Floats(), h_state + j);
  store(c, d.c + out, n);
  store(h, d.h + out, n);
}

// A step left out: the state stays, gates are zeros.
template <class T>
HWY_INLINE void lstm_skip(const RecurrentData<T>& d, Dim b, Dim s, Dim j, Dim n, const float* h_old,
                          float* h_state, const float* c_state) {
  const RecurrentForm& f = d.f;
  const Dim in = (b * f.steps + f.input_at(s)) * 4 * f.units + j;
  const Dim out = (b * f.steps + f.output_at(s)) * f.units + j;
  for (Dim g = 0; g < 4; ++g) store(hn::Zero(Floats()), d.gates + in + g * f.units, n);
  const auto h = hn::LoadU(Floats(), h_old + j);
  hn::StoreU(h, Floats(), h_state + j);
  store(h, d.h + out, n);
  store(hn::LoadU(Floats(), c_state + j), d.c + out, n);
}

// (2, Hp) of h, which steps write in turn, and (Hp) of c, for each sample.
template <class T>
HWY_INLINE void lstm_forward_group(const RecurrentData<T>& d, Dim begin, Dim end) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, padded = padded_units(units), stride = 3 * padded;
  for (Dim b = begin; b < end; ++b) {
    float* state = d.state + b * stride;
    std::fill(state, state + stride, 0.0f);
    if (d.h0)
      for (Dim j = 0; j < units; ++j) state[j] = static_cast<float>(d.h0[b * units + j]);
    if (d.c0)
      for (Dim j = 0; j < units; ++j)
        state[2 * padded + j] = static_cast<float>(d.c0[b * units + j]);
  }
  alignas(64) float sums[kRows * 4 * kPanelUnits];
  for (Dim s = 0; s < f.steps; ++s) {
    const Dim from = s % 2 * padded, to = padded - from, t = f.input_at(s);
    for (Dim j = 0; j < units; j += kPanelUnits)
      in_blocks(begin, end, kRows, [&](Dim first, Dim rows) HWY_ATTR {
        for (Dim b = first; b < first + rows; ++b)
          for (Dim g = 0; g < 4; ++g) hwy::Prefetch(d.z + ((b * f.steps + t) * 4 + g) * units + j);
        float* state = d.state + first * stride;
        band<false>(rows, state + from, stride, d.packed + j * units * 4, 4 * kPanelUnits, units,
                    sums, 4 * kPanelUnits, 4 * kPanelUnits, false);
        for (Dim r = 0; r < rows; ++r, state += stride) {
          const Dim b = first + r;
          const bool skipped = d.mask && !d.mask[b * f.steps + t];
          for (Dim i = 0; i < kPanelUnits && j + i < units; i += kWidth) {
            const Dim n = std::min(kWidth, units - j - i);
            if (skipped)
              lstm_skip(d, b, s, j + i, n, state + from, state + to, state + 2 * padded);
            else
              lstm_cell(d, b, s, j + i, n, sums + r * 4 * kPanelUnits + i, state + to,
                        state + 2 * padded);
          }
        }
      });
  }
  for (Dim b = begin; b < end; ++b) {
    const float* state = d.state + b * stride;
    along_row(units, [&](Dim j, Dim n) HWY_ATTR {
      store(load(state + f.steps % 2 * padded + j, n), d.last_h + b * units + j, n);
      store(load(state + 2 * padded + j, n), d.last_c + b * units + j, n);
    });
  }
}

// The step's dz of one sample, into `dz` (4, H) and the output, and dc of the state before it.
// dh_carry becomes what the product with u^T is added to.
template <class T>
HWY_INLINE void lstm_cell_backward(const RecurrentData<T>& d, Dim b, Dim s, float* dz,
                                   float* dh_carry, float* dc_carry) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, t = f.input_at(s);
  const T* gates = d.z + (b * f.steps + t) * 4 * units;
  T* out = d.gates + (b * f.steps + t) * 4 * units;
  const Dim at = (b * f.steps + f.output_at(s)) * units;
  const T* c_old = s > 0  ? d.c + (b * f.steps + f.output_at(s - 1)) * units
                   : d.c0 ? d.c0 + b * units
                          : nullptr;
  const bool skipped = d.mask && !d.mask[b * f.steps + t];
  along_row(units, [&](Dim j, Dim n) HWY_ATTR {
    const Floats tag;
    auto dh = hn::LoadU(tag, dh_carry + j);
    if (d.dh) dh = hn::Add(dh, load(d.dh + at + j, n));
    if (skipped) {
      for (Dim g = 0; g < 4; ++g) {
        store(hn::Zero(tag), out + g * units + j, n);
        store(hn::Zero(tag), dz + g * units + j, n);
      }
      hn::StoreU(dh, tag, dh_carry + j);
      return;
    }
    const auto i = load(gates + j, n), forget = load(gates + units + j, n);
    const auto candidate = load(gates + 2 * units + j, n), o = load(gates + 3 * units + j, n);
    const auto y = squash_of(f.activation, load(d.c + at + j, n));
    const auto before = c_old ? load(c_old + j, n) : hn::Zero(tag);
    const auto dc = hn::Add(hn::LoadU(tag, dc_carry + j),
                            hn::Mul(hn::Mul(dh, o), squash_slope_of(f.activation, y)));
    auto write = [&](Dim g, FloatVector of_gate, Squash kind, FloatVector value) HWY_ATTR {
      const auto result = hn::Mul(of_gate, squash_slope_of(kind, value));
      store(result, out + g * units + j, n);
      store(result, dz + g * units + j, n);
    };
    write(0, hn::Mul(dc, candidate), f.recurrent_activation, i);
    write(1, hn::Mul(dc, before), f.recurrent_activation, forget);
    write(2, hn::Mul(dc, i), f.activation, candidate);
    write(3, hn::Mul(dh, y), f.recurrent_activation, o);
    hn::StoreU(hn::Mul(dc, forget), tag, dc_carry + j);
    hn::StoreU(hn::Zero(tag), tag, dh_carry + j);
  });
}

// (4 H) of dz, padded, then (Hp) of dh and (Hp) of dc, for each sample.
template <class T>
HWY_INLINE void lstm_backward_group(const RecurrentData<T>& d, Dim begin, Dim end) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, padded = padded_units(units), stride = 6 * padded;
  for (Dim b = begin; b < end; ++b) {
    float* state = d.state + b * stride;
    std::fill(state, state + stride, 0.0f);
    for (Dim j = 0; j < units; ++j) {
      if (d.dlast_h) state[4 * padded + j] = static_cast<float>(d.dlast_h[b * units + j]);
      if (d.dlast_c) state[5 * padded + j] = static_cast<float>(d.dlast_c[b * units + j]);
    }
  }
  for (Dim s = f.steps - 1; s >= 0; --s) {
    for (Dim b = begin; b < end; ++b) {
      float* state = d.state + b * stride;
      lstm_cell_backward(d, b, s, state, state + 4 * padded, state + 5 * padded);
    }
    for (Dim j = 0; j < padded; j += kColumnPanel) {
      const Dim columns = std::min(kColumnPanel, padded - j);
      in_blocks(begin, end, kRows, [&](Dim first, Dim rows) HWY_ATTR {
        float* state = d.state + first * stride;
        band<false>(rows, state, stride, d.packed + j * 4 * units, columns, 4 * units,
                    state + 4 * padded + j, stride, columns, true);
      });
    }
  }
  for (Dim b = begin; b < end; ++b) {
    const float* state = d.state + b * stride;
    along_row(units, [&](Dim j, Dim n) HWY_ATTR {
      store(load(state + 4 * padded + j, n), d.last_h + b * units + j, n);
      store(load(state + 5 * padded + j, n), d.last_c + b * units + j, n);
    });
  }
}

void lstm_forward_f32(const RecurrentData<float>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { lstm_forward_group(d, b, b + n); });
}
void lstm_forward_bf16(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { lstm_forward_group(d, b, b + n); });
}
void lstm_backward_f32(const RecurrentData<float>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { lstm_backward_group(d, b, b + n); });
}
void lstm_backward_bf16(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { lstm_backward_group(d, b, b + n); });
}

bool lstm_fuses() { return HWY_NATIVE_FMA != 0; }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {
namespace {
HWY_EXPORT(lstm_forward_f32);
HWY_EXPORT(lstm_forward_bf16);
HWY_EXPORT(lstm_backward_f32);
HWY_EXPORT(lstm_backward_bf16);
HWY_EXPORT(lstm_fuses);

bool fuses() { return HWY_DYNAMIC_DISPATCH(lstm_fuses)(); }
void run_forward(const RecurrentData<float>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(lstm_forward_f32)(d, begin, end);
}
void run_forward(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(lstm_forward_bf16)(d, begin, end);
}
void run_backward(const RecurrentData<float>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(lstm_backward_f32)(d, begin, end);
}
void run_backward(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(lstm_backward_bf16)(d, begin, end);
}

template <class T>
std::unique_ptr<Kernel> forward(const RecurrentForm& form, int threads) {
  const PackedCall call{.gates = 4, .u = 1, .transposed = false, .states = 3, .fuses = fuses()};
  return packed_kernel<T>(
      form, threads, call,
      [](void* const*, void* const* out, RecurrentData<T>& d) {
        d.gates = recurrent_operand<T>(out, 1);
        d.h = recurrent_operand<T>(out, 0);
        d.c = recurrent_operand<T>(out, 2);
        d.last_h = recurrent_operand<T>(out, 3);
        d.last_c = recurrent_operand<T>(out, 4);
      },
      [](const RecurrentData<T>& d, Dim begin, Dim end) { run_forward(d, begin, end); });
}

template <class T>
std::unique_ptr<Kernel> backward(const RecurrentForm& form, int threads) {
  const PackedCall call{.gates = 4, .u = 2, .transposed = true, .states = 6, .fuses = fuses()};
  return packed_kernel<T>(
      form, threads, call,
      [](void* const* in, void* const* out, RecurrentData<T>& d) {
        d.gates = recurrent_operand<T>(out, 0);
        d.c = recurrent_operand<T>(in, 1);
        d.last_h = recurrent_operand<T>(out, 1);
        d.last_c = recurrent_operand<T>(out, 2);
      },
      [](const RecurrentData<T>& d, Dim begin, Dim end) { run_backward(d, begin, end); });
}

}  // namespace

std::unique_ptr<Kernel> lstm_simd(const PrepareCall& call) {
  const RecurrentForm form = lstm_form(call);
  if (form.dropped >= 0) return nullptr;
  return dispatch_simd(call.in[0].dtype,
                       [&]<class T>() { return forward<T>(form, call.backend.threads()); });
}

std::unique_ptr<Kernel> lstm_gradient_simd(const PrepareCall& call) {
  const RecurrentForm form = lstm_gradient_form(call);
  if (form.dropped >= 0 || form.dgates >= 0 || form.dcells >= 0) return nullptr;
  return dispatch_simd(call.in[0].dtype,
                       [&]<class T>() { return backward<T>(form, call.backend.threads()); });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
