#include <algorithm>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/own_rows.h"
#include "op/step_params.h"

namespace pl::cpu {
namespace {

struct Form {
  Dim images, rows, row;             // row: elements
  std::vector<int64_t> starts, own;  // empty: every row is the band's own
};

Form form_of(const PrepareCall& call) {
  const Shape& x = call.in[0].shape;
  Form form{x[0], x[1], x.without_front().without_front().elements(), {}, {}};
  if (call.attrs.has("starts")) {
    form.starts = call.attrs.list("starts");
    form.own = call.attrs.list("own");
  }
  return form;
}

}  // namespace

std::unique_ptr<Kernel> own_rows_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const int threads = call.backend.threads();
    return make_kernel([f, threads](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      StepParams params;
      std::memcpy(&params, in[1], sizeof params);
      Dim first = 0, last = f.rows;
      if (!f.starts.empty()) {
        const auto band = static_cast<size_t>(params.band);
        first = f.own[band] - f.starts[band];
        last = f.own[band + 1] - f.starts[band];
      }
      const Dim total = f.images * f.rows;
      parallel_ranges(threads, total, total * f.row, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r) {
          const bool own = r % f.rows >= first && r % f.rows < last;
          if (!own)
            std::fill_n(y + r * f.row, f.row, T(0));
          else if (y != x)
            std::copy_n(x + r * f.row, f.row, y + r * f.row);
        }
      });
    });
  });
}

}  // namespace pl::cpu
