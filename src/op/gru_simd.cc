// gru with reset_after and its gradient, float32 or bfloat16 with states in float32, compiled once
// for each SIMD target.
#include "op/gru.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/gru_simd.cc"
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

// Units [j, j + n) of one sample in one step. `sums`: [gate][unit] of the panel.
template <class T>
HWY_INLINE void gru_cell(const RecurrentData<T>& d, Dim b, Dim s, Dim j, Dim n, const float* sums,
                         const float* h_old, float* h_state) {
  const Floats tag;
  const RecurrentForm& f = d.f;
  const Dim units = f.units, at = b * f.steps + f.input_at(s);
  const Dim in = at * 3 * units + j, out = (b * f.steps + f.output_at(s)) * units + j;
  auto sum = [&](Dim g) HWY_ATTR {
    const auto product = hn::LoadU(tag, sums + g * kPanelUnits);
    return d.bias ? hn::Add(product, load(d.bias + g * units + j, n)) : product;
  };
  auto gate = [&](Dim g) HWY_ATTR {
    const auto y =
        squash_of(f.recurrent_activation, hn::Add(load(d.z + in + g * units, n), sum(g)));
    store(y, d.gates + in + g * units, n);
    return y;
  };
  const auto update = gate(0), reset = gate(1), inner = sum(2);
  store(inner, d.c + at * units + j, n);
  const auto candidate =
      squash_of(f.activation, hn::Add(load(d.z + in + 2 * units, n), hn::Mul(reset, inner)));
  store(candidate, d.gates + in + 2 * units, n);
  const auto rest = hn::Sub(hn::Set(tag, 1.0f), update);
  const auto h = hn::Add(hn::Mul(update, hn::LoadU(tag, h_old + j)), hn::Mul(rest, candidate));
  hn::StoreU(h, tag, h_state + j);
  store(h, d.h + out, n);
}

// A step left out: the state stays, gates are zeros.
template <class T>
HWY_INLINE void gru_skip(const RecurrentData<T>& d, Dim b, Dim s, Dim j, Dim n, const float* h_old,
                         float* h_state) {
  const RecurrentForm& f = d.f;
  const Dim at = b * f.steps + f.input_at(s);
  for (Dim g = 0; g < 3; ++g) store(hn::Zero(Floats()), d.gates + (at * 3 + g) * f.units + j, n);
  store(hn::Zero(Floats()), d.c + at * f.units + j, n);
  const auto h = hn::LoadU(Floats(), h_old + j);
  hn::StoreU(h, Floats(), h_state + j);
  store(h, d.h + (b * f.steps + f.output_at(s)) * f.units + j, n);
}

// (2, Hp) of h, which steps write in turn, for each sample.
template <class T>
HWY_INLINE void gru_forward_group(const RecurrentData<T>& d, Dim begin, Dim end) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, padded = padded_units(units), stride = 2 * padded;
  constexpr Dim kColumns = 3 * kPanelUnits;
  for (Dim b = begin; b < end; ++b) {
    float* state = d.state + b * stride;
    std::fill(state, state + stride, 0.0f);
    if (d.h0)
      for (Dim j = 0; j < units; ++j) state[j] = static_cast<float>(d.h0[b * units + j]);
  }
  alignas(64) float sums[kRows * kColumns];
  for (Dim s = 0; s < f.steps; ++s) {
    const Dim from = s % 2 * padded, to = padded - from, t = f.input_at(s);
    for (Dim j = 0; j < units; j += kPanelUnits)
      in_blocks(begin, end, kRows, [&](Dim first, Dim rows) HWY_ATTR {
        for (Dim b = first; b < first + rows; ++b)
          for (Dim g = 0; g < 3; ++g) hwy::Prefetch(d.z + ((b * f.steps + t) * 3 + g) * units + j);
        float* state = d.state + first * stride;
        band<false>(rows, state + from, stride, d.packed + j * units * 3, kColumns, units, sums,
                    kColumns, kColumns, false);
        for (Dim r = 0; r < rows; ++r, state += stride) {
          const Dim b = first + r;
          const bool skipped = d.mask && !d.mask[b * f.steps + t];
          for (Dim i = 0; i < kPanelUnits && j + i < units; i += kWidth) {
            const Dim n = std::min(kWidth, units - j - i);
            if (skipped)
              gru_skip(d, b, s, j + i, n, state + from, state + to);
            else
              gru_cell(d, b, s, j + i, n, sums + r * kColumns + i, state + from, state + to);
          }
        }
      });
  }
  for (Dim b = begin; b < end; ++b) {
    const float* state = d.state + b * stride + f.steps % 2 * padded;
    along_row(units, [&](Dim j, Dim n)
                         HWY_ATTR { store(load(state + j, n), d.last_h + b * units + j, n); });
  }
}

// The step's dz and dn of one sample; `products` (3, H) gets what is multiplied by u^T. dh_carry
// becomes what that product is added to.
template <class T>
HWY_INLINE void gru_cell_backward(const RecurrentData<T>& d, Dim b, Dim s, float* products,
                                  float* dh_carry) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, at = b * f.steps + f.input_at(s);
  const T *gates = d.z + at * 3 * units, *inner = d.c + at * units;
  T *dz = d.gates + at * 3 * units, *dn = d.dn + at * units;
  const Dim place = (b * f.steps + f.output_at(s)) * units;
  const T* h_old = s > 0  ? d.h + (b * f.steps + f.output_at(s - 1)) * units
                   : d.h0 ? d.h0 + b * units
                          : nullptr;
  const bool skipped = d.mask && !d.mask[at];
  along_row(units, [&](Dim j, Dim n) HWY_ATTR {
    const Floats tag;
    auto dh = hn::LoadU(tag, dh_carry + j);
    if (d.dh) dh = hn::Add(dh, load(d.dh + place + j, n));
    auto write = [&](Dim g, FloatVector value, FloatVector product) HWY_ATTR {
      store(value, dz + g * units + j, n);
      store(product, products + g * units + j, n);
    };
    if (skipped) {
      for (Dim g = 0; g < 3; ++g) write(g, hn::Zero(tag), hn::Zero(tag));
      store(hn::Zero(tag), dn + j, n);
      hn::StoreU(dh, tag, dh_carry + j);
      return;
    }
    const auto update = load(gates + j, n), reset = load(gates + units + j, n);
    const auto candidate = load(gates + 2 * units + j, n), inside = load(inner + j, n);
    const auto old = h_old ? load(h_old + j, n) : hn::Zero(tag);
    const auto dcandidate = hn::Mul(hn::Mul(dh, hn::Sub(hn::Set(tag, 1.0f), update)),
                                    squash_slope_of(f.activation, candidate));
    const auto dupdate = hn::Mul(hn::Mul(dh, hn::Sub(old, candidate)),
                                 squash_slope_of(f.recurrent_activation, update));
    const auto dreset =
        hn::Mul(hn::Mul(dcandidate, inside), squash_slope_of(f.recurrent_activation, reset));
    const auto dinner = hn::Mul(dcandidate, reset);
    write(0, dupdate, dupdate);
    write(1, dreset, dreset);
    write(2, dcandidate, dinner);
    store(dinner, dn + j, n);
    hn::StoreU(hn::Mul(dh, update), tag, dh_carry + j);
  });
}

// (3 H) of products, padded, then (Hp) of dh, for each sample.
template <class T>
HWY_INLINE void gru_backward_group(const RecurrentData<T>& d, Dim begin, Dim end) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, padded = padded_units(units), stride = 4 * padded;
  for (Dim b = begin; b < end; ++b) {
    float* state = d.state + b * stride;
    std::fill(state, state + stride, 0.0f);
    if (d.dlast_h)
      for (Dim j = 0; j < units; ++j)
        state[3 * padded + j] = static_cast<float>(d.dlast_h[b * units + j]);
  }
  for (Dim s = f.steps - 1; s >= 0; --s) {
    for (Dim b = begin; b < end; ++b) {
      float* state = d.state + b * stride;
      gru_cell_backward(d, b, s, state, state + 3 * padded);
    }
    for (Dim j = 0; j < padded; j += kColumnPanel) {
      const Dim columns = std::min(kColumnPanel, padded - j);
      in_blocks(begin, end, kRows, [&](Dim first, Dim rows) HWY_ATTR {
        float* state = d.state + first * stride;
        band<false>(rows, state, stride, d.packed + j * 3 * units, columns, 3 * units,
                    state + 3 * padded + j, stride, columns, true);
      });
    }
  }
  for (Dim b = begin; b < end; ++b) {
    const float* state = d.state + b * stride + 3 * padded;
    along_row(units, [&](Dim j, Dim n)
                         HWY_ATTR { store(load(state + j, n), d.last_h + b * units + j, n); });
  }
}

void gru_forward_f32(const RecurrentData<float>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { gru_forward_group(d, b, b + n); });
}
void gru_forward_bf16(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { gru_forward_group(d, b, b + n); });
}
void gru_backward_f32(const RecurrentData<float>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { gru_backward_group(d, b, b + n); });
}
void gru_backward_bf16(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { gru_backward_group(d, b, b + n); });
}

bool gru_fuses() { return HWY_NATIVE_FMA != 0; }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {
namespace {
HWY_EXPORT(gru_forward_f32);
HWY_EXPORT(gru_forward_bf16);
HWY_EXPORT(gru_backward_f32);
HWY_EXPORT(gru_backward_bf16);
HWY_EXPORT(gru_fuses);

bool fuses() { return HWY_DYNAMIC_DISPATCH(gru_fuses)(); }
void run_forward(const RecurrentData<float>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(gru_forward_f32)(d, begin, end);
}
void run_forward(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(gru_forward_bf16)(d, begin, end);
}
void run_backward(const RecurrentData<float>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(gru_backward_f32)(d, begin, end);
}
void run_backward(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(gru_backward_bf16)(d, begin, end);
}

template <class T>
std::unique_ptr<Kernel> forward(const RecurrentForm& form, int threads) {
  const PackedCall call{.gates = 3, .u = 1, .transposed = false, .states = 2, .fuses = fuses()};
  return packed_kernel<T>(
      form, threads, call,
      [](void* const*, void* const* out, RecurrentData<T>& d) {
        d.gates = recurrent_operand<T>(out, 1);
        d.h = recurrent_operand<T>(out, 0);
        d.c = recurrent_operand<T>(out, 2);
        d.last_h = recurrent_operand<T>(out, 3);
      },
      [](const RecurrentData<T>& d, Dim begin, Dim end) { run_forward(d, begin, end); });
}

template <class T>
std::unique_ptr<Kernel> backward(const RecurrentForm& form, int threads) {
  const PackedCall call{.gates = 3, .u = 3, .transposed = true, .states = 4, .fuses = fuses()};
  return packed_kernel<T>(
      form, threads, call,
      [](void* const* in, void* const* out, RecurrentData<T>& d) {
        d.gates = recurrent_operand<T>(out, 0);
        d.h = recurrent_operand<T>(in, 2);
        d.c = recurrent_operand<T>(in, 1);
        d.dn = recurrent_operand<T>(out, 1);
        d.last_h = recurrent_operand<T>(out, 2);
      },
      [](const RecurrentData<T>& d, Dim begin, Dim end) { run_backward(d, begin, end); });
}

}  // namespace

std::unique_ptr<Kernel> gru_simd(const PrepareCall& call) {
  const RecurrentForm form = gru_form(call);
  if (!form.reset_after || form.dropped >= 0) return nullptr;
  return dispatch_simd(call.in[0].dtype,
                       [&]<class T>() { return forward<T>(form, call.backend.threads()); });
}

std::unique_ptr<Kernel> gru_gradient_simd(const PrepareCall& call) {
  const RecurrentForm form = gru_gradient_form(call);
  if (!form.reset_after || form.dropped >= 0 || form.dgates >= 0 || form.dcells >= 0)
    return nullptr;
  return dispatch_simd(call.in[0].dtype,
                       [&]<class T>() { return backward<T>(form, call.backend.threads()); });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
