// CPU kernel of flip: runs of elements behind the last flipped axis, each to its place.
#include <algorithm>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/flip.h"
#include "op/kernel.h"

namespace pl::cpu {

std::unique_ptr<Kernel> flip_reference(const PrepareCall& call) {
  const Shape& shape = call.in[0].shape;
  const std::vector<int64_t>& axes = call.attrs.list("axes");
  const int last = axes.empty() ? -1 : static_cast<int>(axes.back());
  // Dimensions up to the last flipped one, and what lies behind it.
  struct Axis {
    Dim size;
    bool flipped;
  };
  std::vector<Axis> outer;
  Dim runs = 1, run = 1;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d > last) {
      run *= shape[d];
      continue;
    }
    outer.push_back({shape[d], std::find(axes.begin(), axes.end(), d) != axes.end()});
    runs *= shape[d];
  }
  const auto bytes = static_cast<size_t>(run) * static_cast<size_t>(size_of(call.in[0].dtype));
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const char* x = static_cast<const char*>(in[0]);
    char* y = static_cast<char*>(out[0]);
    parallel_ranges(threads, runs, runs * run, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end && bytes > 0; ++i) {
        Dim from = 0, index = i, stride = 1;
        for (size_t d = outer.size(); d-- > 0;) {
          const Dim at = index % outer[d].size;
          from += (outer[d].flipped ? outer[d].size - 1 - at : at) * stride;
          index /= outer[d].size;
          stride *= outer[d].size;
        }
        std::memcpy(y + static_cast<size_t>(i) * bytes, x + static_cast<size_t>(from) * bytes,
                    bytes);
      }
    });
  });
}

}  // namespace pl::cpu
