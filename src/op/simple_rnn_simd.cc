// simple_rnn and its gradient, float32 or bfloat16 with states in float32, compiled once for each
// SIMD target.
#include "op/simple_rnn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/simple_rnn_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

#include "hwy/highway.h"
#include "op/bfloat_pair.h"
#include "op/kernel.h"
#include "op/recurrent_data.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/recurrent_simd-inl.h"

// Units [j, j + n) of one sample in one step; where the mask leaves it out, the state stays.
template <class T>
HWY_INLINE void rnn_cell(const RecurrentData<T>& d, Dim b, Dim s, Dim j, Dim n, const float* sums,
                         const float* h_old, float* h_state) {
  const RecurrentForm& f = d.f;
  const Dim at = b * f.steps + f.input_at(s);
  const bool skipped = d.mask && !d.mask[at];
  const auto h = skipped ? hn::LoadU(Floats(), h_old + j)
                         : squash_of(f.activation, hn::Add(load(d.z + at * f.units + j, n),
                                                           hn::LoadU(Floats(), sums)));
  hn::StoreU(h, Floats(), h_state + j);
  store(h, d.h + (b * f.steps + f.output_at(s)) * f.units + j, n);
}

// (2, Hp) of h, which steps write in turn, for each sample.
template <class T>
HWY_INLINE void rnn_forward_group(const RecurrentData<T>& d, Dim begin, Dim end) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, padded = padded_units(units), stride = 2 * padded;
  for (Dim b = begin; b < end; ++b) {
    float* state = d.state + b * stride;
    std::fill(state, state + stride, 0.0f);
    if (d.h0)
      for (Dim j = 0; j < units; ++j) state[j] = static_cast<float>(d.h0[b * units + j]);
  }
  alignas(64) float sums[kRows * kColumnPanel];
  for (Dim s = 0; s < f.steps; ++s) {
    const Dim from = s % 2 * padded, to = padded - from;
    for (Dim j = 0; j < padded; j += kColumnPanel) {
      const Dim columns = std::min(kColumnPanel, padded - j);
      in_blocks(begin, end, kRows, [&](Dim first, Dim rows) HWY_ATTR {
        float* state = d.state + first * stride;
        band<false>(rows, state + from, stride, d.packed + j * units, columns, units, sums,
                    kColumnPanel, columns, false);
        for (Dim r = 0; r < rows; ++r, state += stride)
          for (Dim i = 0; i < columns && j + i < units; i += kWidth)
            rnn_cell(d, first + r, s, j + i, std::min(kWidth, units - j - i),
                     sums + r * kColumnPanel + i, state + from, state + to);
      });
    }
  }
  for (Dim b = begin; b < end; ++b) {
    const float* state = d.state + b * stride + f.steps % 2 * padded;
    along_row(units, [&](Dim j, Dim n)
                         HWY_ATTR { store(load(state + j, n), d.last_h + b * units + j, n); });
  }
}

// The step's dz of one sample, into `dz` (H) and the output. dh_carry becomes what the product with
// u^T is added to.
template <class T>
HWY_INLINE void rnn_cell_backward(const RecurrentData<T>& d, Dim b, Dim s, float* dz,
                                  float* dh_carry) {
  const RecurrentForm& f = d.f;
  const Dim in = b * f.steps + f.input_at(s), out = (b * f.steps + f.output_at(s)) * f.units;
  const bool skipped = d.mask && !d.mask[in];
  along_row(f.units, [&](Dim j, Dim n) HWY_ATTR {
    const Floats tag;
    auto dh = hn::LoadU(tag, dh_carry + j);
    if (d.dh) dh = hn::Add(dh, load(d.dh + out + j, n));
    const auto y = load(d.z + out + j, n);
    const auto result = skipped ? hn::Zero(tag) : hn::Mul(dh, squash_slope_of(f.activation, y));
    store(result, d.gates + in * f.units + j, n);
    store(result, dz + j, n);
    hn::StoreU(skipped ? dh : hn::Zero(tag), tag, dh_carry + j);
  });
}

// (Hp) of dz and (Hp) of dh, for each sample.
template <class T>
HWY_INLINE void rnn_backward_group(const RecurrentData<T>& d, Dim begin, Dim end) {
  const RecurrentForm& f = d.f;
  const Dim units = f.units, padded = padded_units(units), stride = 2 * padded;
  for (Dim b = begin; b < end; ++b) {
    float* state = d.state + b * stride;
    std::fill(state, state + stride, 0.0f);
    if (d.dlast_h)
      for (Dim j = 0; j < units; ++j)
        state[padded + j] = static_cast<float>(d.dlast_h[b * units + j]);
  }
  for (Dim s = f.steps - 1; s >= 0; --s) {
    for (Dim b = begin; b < end; ++b) {
      float* state = d.state + b * stride;
      rnn_cell_backward(d, b, s, state, state + padded);
    }
    for (Dim j = 0; j < padded; j += kColumnPanel) {
      const Dim columns = std::min(kColumnPanel, padded - j);
      in_blocks(begin, end, kRows, [&](Dim first, Dim rows) HWY_ATTR {
        float* state = d.state + first * stride;
        band<false>(rows, state, stride, d.packed + j * units, columns, units, state + padded + j,
                    stride, columns, true);
      });
    }
  }
  for (Dim b = begin; b < end; ++b) {
    const float* state = d.state + b * stride + padded;
    along_row(units, [&](Dim j, Dim n)
                         HWY_ATTR { store(load(state + j, n), d.last_h + b * units + j, n); });
  }
}

void rnn_forward_f32(const RecurrentData<float>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { rnn_forward_group(d, b, b + n); });
}
void rnn_forward_bf16(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { rnn_forward_group(d, b, b + n); });
}
void rnn_backward_f32(const RecurrentData<float>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { rnn_backward_group(d, b, b + n); });
}
void rnn_backward_bf16(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  in_blocks(begin, end, kGroup, [&](Dim b, Dim n) HWY_ATTR { rnn_backward_group(d, b, b + n); });
}

bool rnn_fuses() { return HWY_NATIVE_FMA != 0; }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {
namespace {
HWY_EXPORT(rnn_forward_f32);
HWY_EXPORT(rnn_forward_bf16);
HWY_EXPORT(rnn_backward_f32);
HWY_EXPORT(rnn_backward_bf16);
HWY_EXPORT(rnn_fuses);

bool fuses() { return HWY_DYNAMIC_DISPATCH(rnn_fuses)(); }
void run_forward(const RecurrentData<float>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(rnn_forward_f32)(d, begin, end);
}
void run_forward(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(rnn_forward_bf16)(d, begin, end);
}
void run_backward(const RecurrentData<float>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(rnn_backward_f32)(d, begin, end);
}
void run_backward(const RecurrentData<Bfloat16>& d, Dim begin, Dim end) {
  HWY_DYNAMIC_DISPATCH(rnn_backward_bf16)(d, begin, end);
}

template <class T>
std::unique_ptr<Kernel> forward(const RecurrentForm& form, int threads) {
  const PackedCall call{.gates = 1,
                        .u = 1,
                        .transposed = false,
                        .states = 2,
                        .fuses = fuses(),
                        .panel = kColumnPanel};
  return packed_kernel<T>(
      form, threads, call,
      [](void* const*, void* const* out, RecurrentData<T>& d) {
        d.h = recurrent_operand<T>(out, 0);
        d.last_h = recurrent_operand<T>(out, 1);
      },
      [](const RecurrentData<T>& d, Dim begin, Dim end) { run_forward(d, begin, end); });
}

template <class T>
std::unique_ptr<Kernel> backward(const RecurrentForm& form, int threads) {
  const PackedCall call{.gates = 1, .u = 1, .transposed = true, .states = 2, .fuses = fuses()};
  return packed_kernel<T>(
      form, threads, call,
      [](void* const*, void* const* out, RecurrentData<T>& d) {
        d.gates = recurrent_operand<T>(out, 0);
        d.last_h = recurrent_operand<T>(out, 1);
      },
      [](const RecurrentData<T>& d, Dim begin, Dim end) { run_backward(d, begin, end); });
}

}  // namespace

std::unique_ptr<Kernel> simple_rnn_simd(const PrepareCall& call) {
  const RecurrentForm form = simple_rnn_form(call);
  if (form.dropped >= 0) return nullptr;
  return dispatch_simd(call.in[0].dtype,
                       [&]<class T>() { return forward<T>(form, call.backend.threads()); });
}

std::unique_ptr<Kernel> simple_rnn_gradient_simd(const PrepareCall& call) {
  const RecurrentForm form = simple_rnn_gradient_form(call);
  if (form.dropped >= 0) return nullptr;
  return dispatch_simd(call.in[0].dtype,
                       [&]<class T>() { return backward<T>(form, call.backend.threads()); });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
