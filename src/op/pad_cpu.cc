// CPU kernels of pad and crop: lines of bytes, moved.
#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/pad.h"

namespace pl::cpu {
namespace {

// Small and large images (B, H, W, C) in lines of bytes.
struct Lines {
  Dim batch, small, large;    // lines of an image
  Bytes line, before, after;  // of a small line, and of the zeros beside it
  Dim top;                    // lines of zeros above
  Bytes wide() const { return before + line + after; }
};

Lines lines_of(const Meta& small, const Meta& large, const Attrs& attrs) {
  const auto& pads = attrs.list("pads");
  const Bytes pixel = size_of(small.dtype) * small.shape[3];
  return {small.shape[0],  small.shape[1],  large.shape[1], pixel * small.shape[2],
          pixel * pads[2], pixel * pads[3], pads[0]};
}

// memset and memcpy of nothing would still want pointers that are not null.
void zero(char* to, Bytes bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}
void copy(char* to, const char* from, Bytes bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

std::unique_ptr<Kernel> pad_reference(const PrepareCall& call) {
  const Lines l = lines_of(call.in[0], call.out[0], call.attrs);
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const char* x = static_cast<const char*>(in[0]);
    char* y = static_cast<char*>(out[0]);
    const Dim lines = l.batch * l.large;
    parallel_ranges(threads, lines, lines * l.wide() / 4, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        char* to = y + i * l.wide();
        const Dim row = i % l.large - l.top;
        if (row < 0 || row >= l.small) {
          zero(to, l.wide());
          continue;
        }
        zero(to, l.before);
        copy(to + l.before, x + (i / l.large * l.small + row) * l.line, l.line);
        zero(to + l.before + l.line, l.after);
      }
    });
  });
}

std::unique_ptr<Kernel> crop_reference(const PrepareCall& call) {
  const Lines l = lines_of(call.out[0], call.in[0], call.attrs);
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const char* x = static_cast<const char*>(in[0]);
    char* y = static_cast<char*>(out[0]);
    const Dim lines = l.batch * l.small;
    parallel_ranges(threads, lines, lines * l.line / 4, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i)
        copy(y + i * l.line,
             x + (i / l.small * l.large + i % l.small + l.top) * l.wide() + l.before, l.line);
    });
  });
}

}  // namespace pl::cpu
