// CPU kernels of concatenate, slice and slice's gradient: runs of bytes, moved.
#include <cstring>
#include <vector>

#include "backend/cpu/parallel.h"
#include "op/concatenate.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// A tensor seen from an axis: `outer` runs of `run` bytes, one for each place before the axis.
struct View {
  Dim outer = 1;
  Bytes element = 1;  // bytes of one step along the axis
  Bytes run = 0;
};

View view_of(const Meta& meta, int axis) {
  View view;
  for (int i = 0; i < axis; ++i) view.outer *= meta.shape[i];
  view.element = size_of(meta.dtype);
  for (int i = axis + 1; i < meta.shape.rank(); ++i) view.element *= meta.shape[i];
  view.run = view.element * meta.shape[axis];
  return view;
}

int axis_of(const PrepareCall& call) { return static_cast<int>(call.attrs.integer("axis")); }

// memcpy of nothing would still want pointers that are not null.
void copy(char* to, const char* from, Bytes bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

std::unique_ptr<Kernel> concatenate_reference(const PrepareCall& call) {
  const View whole = view_of(call.out[0], axis_of(call));
  std::vector<Bytes> runs;
  for (const Meta& part : call.in) runs.push_back(view_of(part, axis_of(call)).run);
  const int threads = call.backend.threads();
  const Bytes held = static_cast<Bytes>(runs.size() * sizeof(Bytes));
  auto kernel = make_kernel([=](void* const* in, void* const* out, void*) {
    char* to = static_cast<char*>(out[0]);
    parallel_ranges(threads, whole.outer, whole.outer * whole.run / 4, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        Bytes at = i * whole.run;
        for (size_t p = 0; p < runs.size(); at += runs[p++])
          copy(to + at, static_cast<const char*>(in[p]) + i * runs[p], runs[p]);
      }
    });
  });
  kernel->footprint += held;
  return kernel;
}

std::unique_ptr<Kernel> slice_reference(const PrepareCall& call) {
  const View whole = view_of(call.in[0], axis_of(call)), part = view_of(call.out[0], axis_of(call));
  const Bytes skip = call.attrs.integer("begin") * whole.element;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const char* from = static_cast<const char*>(in[0]);
    char* to = static_cast<char*>(out[0]);
    parallel_ranges(threads, part.outer, part.outer * part.run / 4, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i)
        copy(to + i * part.run, from + i * whole.run + skip, part.run);
    });
  });
}

std::unique_ptr<Kernel> slice_gradient_reference(const PrepareCall& call) {
  const View whole = view_of(call.out[0], axis_of(call)), part = view_of(call.in[0], axis_of(call));
  const Bytes skip = call.attrs.integer("begin") * whole.element;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const char* from = static_cast<const char*>(in[0]);
    char* to = static_cast<char*>(out[0]);
    parallel_ranges(threads, whole.outer, whole.outer * whole.run / 4, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        char* row = to + i * whole.run;
        const Bytes after = whole.run - skip - part.run;
        if (skip > 0) std::memset(row, 0, static_cast<size_t>(skip));  // 0 in every dtype
        copy(row + skip, from + i * part.run, part.run);
        if (after > 0) std::memset(row + skip + part.run, 0, static_cast<size_t>(after));
      }
    });
  });
}

}  // namespace pl::cpu
