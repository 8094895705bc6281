// CPU kernels of gather (embedding's too) and its gradient.
#include <algorithm>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/gather.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// Calls it with I = int32_t or int64_t.
template <class F>
std::unique_ptr<Kernel> dispatch_index(Dtype dtype, F body) {
  if (dtype == Dtype::int32) return body.template operator()<int32_t>();
  return body.template operator()<int64_t>();
}

// The place that an index names; at least `size`, as an unsigned number, where it is outside.
template <class I>
uint64_t place_of(I index, Dim size, bool from_end) {
  const auto place = static_cast<int64_t>(index);
  return static_cast<uint64_t>(place < 0 && from_end ? place + size : place);
}

// y[k] = x[indices[k]], or that of column k.
template <bool columns, class T, class I>
void pick(const GatherForm& f, const T* x, const I* indices, T outside, T* y, Dim count) {
  const auto size = static_cast<uint64_t>(f.size);
  if (size == 0) return void(std::fill(y, y + count, outside));
  for (Dim k = 0; k < count; ++k) {
    const uint64_t place = place_of(indices[k], f.size, f.from_end);
    const bool inside = place < size;
    const auto at = static_cast<Dim>(inside ? place : 0);
    const T value = columns ? x[at * f.inner + k] : x[at];
    y[k] = inside ? value : outside;
  }
}

// Row by row; T only moves.
template <class T, class I>
std::unique_ptr<Kernel> gather_of(const GatherForm& f, T outside, int threads) {
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    const I* indices = static_cast<const I*>(in[1]);
    T* y = static_cast<T*>(out[0]);
    const Dim rows = f.outer * f.count;
    parallel_ranges(threads, rows, rows * f.inner, [&](Dim begin, Dim end) {
      for (Dim r = begin; r < end;) {
        const Dim o = r / f.count, j = r % f.count;
        const T* table = x + o * f.size * f.inner;
        const I* from = f.each ? indices + r * f.inner : indices + j;
        T* to = y + r * f.inner;
        if (f.inner == 1) {
          const Dim count = std::min(f.count - j, end - r);
          pick<false>(f, table, from, outside, to, count);
          r += count;
          continue;
        }
        if (f.each) {
          pick<true>(f, table, from, outside, to, f.inner);
        } else {
          const uint64_t place = place_of(*from, f.size, f.from_end);
          if (place < static_cast<uint64_t>(f.size))
            std::copy_n(table + static_cast<Dim>(place) * f.inner, f.inner, to);
          else
            std::fill_n(to, f.inner, outside);
        }
        ++r;
      }
    });
  });
}

// Columns [begin, end) of one of the outer: dy (count, inner) is added to the rows of x (size,
// inner) in the order of the indices.
template <class In, class T, class I>
void add_columns(const GatherForm& f, const I* indices, const In* dy, T* x, Dim begin, Dim end) {
  const bool whole = end - begin == f.inner;
  for (Dim s = 0; s < (whole ? 1 : f.size); ++s)
    std::fill_n(x + s * f.inner + begin, whole ? f.size * f.inner : end - begin, T(0));
  for (Dim j = 0; j < f.count; ++j, dy += f.inner) {
    const I* row = f.each ? indices + j * f.inner : indices + j;
    for (Dim i = begin; i < end; ++i) {
      const uint64_t place = place_of(f.each ? row[i] : *row, f.size, f.from_end);
      if (place < static_cast<uint64_t>(f.size))
        x[static_cast<Dim>(place) * f.inner + i] += static_cast<T>(dy[i]);
    }
  }
}

// Threads share out what no sum crosses: the outer, or where there is one the columns.
template <class In, class T, class I>
std::unique_ptr<Kernel> gradient_of(const GatherForm& f, int threads) {
  constexpr Dim kLine = 64 / static_cast<Dim>(sizeof(T));
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const I* indices = static_cast<const I*>(in[0]);
    const In* dy = static_cast<const In*>(in[1]);
    T* x = static_cast<T*>(out[0]);
    const Dim work = f.outer * (f.size + f.count) * f.inner;
    auto add = [&](Dim o, Dim begin, Dim end) {
      add_columns(f, f.each ? indices + o * f.count * f.inner : indices, dy + o * f.count * f.inner,
                  x + o * f.size * f.inner, begin, end);
    };
    if (f.outer > 1)
      parallel_ranges(threads, f.outer, work, [&](Dim begin, Dim end) {
        for (Dim o = begin; o < end; ++o) add(o, 0, f.inner);
      });
    else if (f.outer == 1)
      parallel_ranges(
          threads, f.inner, work, [&](Dim begin, Dim end) { add(0, begin, end); }, kLine);
  });
}

}  // namespace

std::unique_ptr<Kernel> gather_kernel(const PrepareCall& call, const GatherForm& form) {
  return dispatch_size(call.in[0].dtype, [&]<class T>() {
    return dispatch_index(call.in[1].dtype, [&]<class I>() {
      const T outside = static_cast<T>(outside_bits(call.in[0].dtype, form.zeros));
      return gather_of<T, I>(form, outside, call.backend.threads());
    });
  });
}

std::unique_ptr<Kernel> gather_reference(const PrepareCall& call) {
  return gather_kernel(call, gather_form(call.in, call.out, call.attrs, false));
}

std::unique_ptr<Kernel> gather_gradient_reference(const PrepareCall& call) {
  const GatherForm form = gather_form(call.in, call.out, call.attrs, true);
  const int threads = call.backend.threads();
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    return dispatch_index(call.in[0].dtype, [&]<class I>() -> std::unique_ptr<Kernel> {
      if (call.in[1].dtype == call.out[0].dtype) return gradient_of<T, T, I>(form, threads);
      if constexpr (std::is_same_v<T, float>)
        if (call.in[1].dtype == Dtype::bfloat16) return gradient_of<Bfloat16, T, I>(form, threads);
      return nullptr;
    });
  });
}

}  // namespace pl::cpu
