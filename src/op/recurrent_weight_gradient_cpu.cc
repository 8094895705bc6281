// CPU kernels of recurrent_weight_gradient.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/product_onednn.h"
#include "op/recurrent_weight_gradient.h"

namespace pl::cpu {
namespace {

// Rows of h_previous and dz that are multiplied at a time. Neither the batch nor a budget changes
// it; a sum over so many is long enough for the library.
constexpr Dim kPieceRows = 1024;

struct Form {
  RecurrentForm sequence;
  Dim columns, width;  // of the result; of dz
  int h0, dropped;
  // The state before the step that read position t of sample b; null: zeros.
  template <class T>
  const T* previous(void* const* in, Dim b, Dim t) const {
    const RecurrentForm& f = sequence;
    const Dim s = f.backwards ? f.steps - 1 - t : t;
    if (s > 0) return static_cast<const T*>(in[0]) + (b * f.steps + f.output_at(s - 1)) * f.units;
    return h0 < 0 ? nullptr : static_cast<const T*>(in[h0]) + b * f.units;
  }
};

Form form_of(const PrepareCall& call) {
  OptionalOperands more(call.attrs, 2);
  Form f{.sequence = recurrent_form("recurrent_weight_gradient", call.in[0].shape,
                                    call.in[0].shape[2], call.in, call.attrs),
         .columns = call.out[0].shape[1],
         .width = call.in[1].shape[2],
         .h0 = 0,
         .dropped = 0};
  f.h0 = more.take("h0");
  f.dropped = more.take("dropped");
  return f;
}

// Row k of the result at a time, over samples and steps in order.
template <class T>
std::unique_ptr<Kernel> reference(const Form& form, int threads) {
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const RecurrentForm& f = form.sequence;
    const T* dz = static_cast<const T*>(in[1]);
    const T* factors = form.dropped < 0 ? nullptr : static_cast<const T*>(in[form.dropped]);
    const Dim work = f.batch * f.steps * f.units * form.columns;
    parallel_ranges(threads, f.units, work, [&](Dim begin, Dim end) {
      for (Dim k = begin; k < end; ++k) {
        T* row = static_cast<T*>(out[0]) + k * form.columns;
        std::fill(row, row + form.columns, T(0));
        for (Dim b = 0; b < f.batch; ++b)
          for (Dim t = 0; t < f.steps; ++t) {
            const T* h = form.previous<T>(in, b, t);
            if (!h) continue;
            const T* step = dz + (b * f.steps + t) * form.width;
            for (Dim j = 0; j < form.columns; ++j) {
              const Dim gate = b * form.columns / f.units + j / f.units;
              const T left = factors ? h[k] * factors[gate * f.units + k] : h[k];
              row[j] += left * step[j];
            }
          }
      }
    });
  });
}

// Previous states are gathered piece by piece, and the library multiplies each onto the sum.
class InPieces final : public Kernel {
 public:
  InPieces(const Form& form, int threads, Dim size) : f_(form), threads_(threads), size_(size) {}

  bool prepare(CpuBackend& backend, dnnl_data_type_t type) {
    const Dim rows = f_.sequence.batch * f_.sequence.steps, units = f_.sequence.units;
    const Bytes gathered = std::min(rows, kPieceRows) * units * size_;
    scratch_at_ = align_up(gathered, CpuBackend::kAlignment);
    workspace_bytes = scratch_at_;
    footprint = static_cast<Bytes>(sizeof *this);
    for (Dim piece : {std::min(rows, kPieceRows), rows > kPieceRows ? rows % kPieceRows : 0}) {
      if (piece == 0) continue;
      Product& product = piece == kPieceRows || rows < kPieceRows ? whole_ : rest_;
      const Operand h{piece, units, units, 1, type}, dz{piece, f_.columns, f_.width, 1, type};
      const Operand sum{units, f_.columns, f_.columns, 1};
      if (!product.prepare(backend, h.transposed(), dz, sum, false, true)) return false;
      workspace_bytes = std::max(workspace_bytes, scratch_at_ + product.scratch_bytes());
      footprint += product.footprint();
      transient = std::max(transient, product.transient());
      key += (key.empty() ? "" : "+") + product.implementation();
    }
    key += ",rows" + std::to_string(kPieceRows);
    library = type == dnnl_bf16 ? "matmul bfloat16" : "matmul";
    return true;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const Dim rows = f_.sequence.batch * f_.sequence.steps;
    char* gathered = static_cast<char*>(workspace);
    std::memset(out[0], 0, sizeof(float) * static_cast<size_t>(f_.sequence.units * f_.columns));
    for (Dim first = 0; first < rows; first += kPieceRows) {
      const Dim count = std::min(kPieceRows, rows - first);
      gather(in, first, count, gathered);
      const char* dz = static_cast<const char*>(in[1]) + first * f_.width * size_;
      Product& product = count == kPieceRows || rows < kPieceRows ? whole_ : rest_;
      product.run(gathered, dz, out[0], gathered + scratch_at_);
    }
  }

 private:
  void gather(void* const* in, Dim first, Dim count, char* to) const {
    const Dim units = f_.sequence.units;
    const auto bytes = static_cast<size_t>(units * size_);
    parallel_ranges(threads_, count, count * units, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        const Dim b = (first + i) / f_.sequence.steps, t = (first + i) % f_.sequence.steps;
        const void* h = size_ == 4 ? static_cast<const void*>(f_.previous<float>(in, b, t))
                                   : f_.previous<Bfloat16>(in, b, t);
        char* row = to + i * units * size_;
        if (h)
          std::memcpy(row, h, bytes);
        else
          std::memset(row, 0, bytes);
      }
    });
  }

  Form f_;
  int threads_;
  Dim size_;  // of an element of h and dz
  Product whole_, rest_;
  Bytes scratch_at_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> recurrent_weight_gradient_onednn(const PrepareCall& call) {
  const Form form = form_of(call);
  const Dim rows = form.sequence.batch * form.sequence.steps;
  if (!onednn_multiplies(call.in[0].dtype) || call.out[0].dtype != Dtype::float32 ||
      form.dropped >= 0 || rows == 0 || call.out[0].elements() == 0)
    return nullptr;
  // The library's generators count in 32 bits.
  if (std::max(form.width, form.sequence.units) > std::numeric_limits<int32_t>::max())
    return nullptr;
  auto kernel = std::make_unique<InPieces>(form, call.backend.threads(),
                                           call.in[0].dtype == Dtype::float32 ? 4 : 2);
  const bool good =
      kernel->prepare(static_cast<CpuBackend&>(call.backend), onednn_type(call.in[0].dtype));
  return good ? std::move(kernel) : nullptr;
}

std::unique_ptr<Kernel> recurrent_weight_gradient_reference(const PrepareCall& call) {
  if (call.in[0].dtype != call.out[0].dtype) return nullptr;
  const Form form = form_of(call);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return reference<T>(form, call.backend.threads()); });
}

}  // namespace pl::cpu
