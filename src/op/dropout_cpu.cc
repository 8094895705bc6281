// Plain CPU kernel of dropout and of its gradient.
#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/dropout.h"
#include "op/kernel.h"
#include "op/philox.h"
#include "op/step_params.h"

namespace pl::cpu {
namespace {

// Element i of the call is element base + i of the full batch. Kept when its word reaches
// `threshold`.
template <class T>
void mask_range(const T* x, T* y, Dim begin, Dim end, const DropoutMask& mask, T factor) {
  for (Dim i = begin; i < end; ++i) {
    const auto index = static_cast<uint64_t>(mask.base + i);
    const uint32_t word = philox_block(mask.key, mask.step, index / 4)[index % 4];
    y[i] = word >= mask.threshold ? x[i] * factor : T(0);
  }
}

}  // namespace

void dropout_tile(const double* x, double* y, Dim count, const DropoutMask& mask, double factor) {
  mask_range(x, y, 0, count, mask, factor);
}

DropoutForm dropout_form(const PrepareCall& call) {
  const Shape& x = call.in[0].shape;
  const Dim total = x.elements();
  const bool rows = call.attrs.integer("rows", 1) && x.rank() > 0 && total > 0;
  DropoutForm form{total, rows ? total / x[0] : 0, call.attrs.real("rate"),
                   static_cast<uint64_t>(call.attrs.integer("stream"))};
  if (call.attrs.has("starts") && total > 0) {
    form.image_row = total / (x[0] * x[1]);
    form.height = call.attrs.integer("height");
    form.starts = call.attrs.list("starts");
  }
  return form;
}

DropoutMask dropout_mask(const DropoutForm& form, const void* step_params) {
  StepParams params;
  std::memcpy(&params, step_params, sizeof params);
  const auto threshold = static_cast<uint32_t>(form.rate * 0x1p32);
  const PhiloxKey key = philox_stream(params.seed, form.stream);
  const auto step = static_cast<uint64_t>(params.step);
  if (!form.starts.empty()) {  // a band of one sample
    const Dim row = params.row_offset * form.height + form.starts[static_cast<size_t>(params.band)];
    return {key, step, row * form.image_row, threshold};
  }
  // Dimension 0 may count more than samples, (B * T, D); a micro-batch says how many it has.
  const Dim per_row =
      form.per_row > 0 && params.call_rows > 0 ? form.total / params.call_rows : form.per_row;
  return {key, step, params.row_offset * per_row, threshold};
}

std::unique_ptr<Kernel> dropout_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const DropoutForm f = dropout_form(call);
    const int threads = call.backend.threads();
    return make_kernel([f, threads](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      const DropoutMask mask = dropout_mask(f, in[1]);
      const T factor = static_cast<T>(f.factor());
      parallel_ranges(threads, f.total, f.total * 16,
                      [&](Dim begin, Dim end) { mask_range(x, y, begin, end, mask, factor); });
    });
  });
}

}  // namespace pl::cpu
