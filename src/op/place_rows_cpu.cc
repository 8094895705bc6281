#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/place_rows.h"
#include "op/step_params.h"

namespace pl::cpu {

std::unique_ptr<Kernel> place_rows_reference(const PrepareCall& call) {
  const Meta &whole = call.in[0], &band = call.in[1];
  const Dim height = whole.shape[1], bands = band.shape[1];
  const Bytes row = bands > 0 ? band.bytes() / bands : 0, all = whole.bytes();
  const int threads = call.backend.threads();
  return make_kernel([height, row, all, threads, starts = call.attrs.list("starts"),
                      own = call.attrs.list("own")](void* const* in, void* const* out, void*) {
    const char* from = static_cast<const char*>(in[1]);
    char* to = static_cast<char*>(out[0]);
    if (in[0] != out[0]) std::memcpy(to, in[0], static_cast<size_t>(all));
    StepParams params;
    std::memcpy(&params, in[2], sizeof params);
    const auto b = static_cast<size_t>(params.band);
    from += (own[b] - starts[b]) * row;
    to += (params.row_offset * height + own[b]) * row;
    const Bytes bytes = (own[b + 1] - own[b]) * row;
    parallel_ranges(threads, bytes, bytes / 8, [&](Dim begin, Dim end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  });
}

}  // namespace pl::cpu
