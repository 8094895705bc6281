// CPU kernels of embedding and its gradient; its rows are picked as gather does.
#include <algorithm>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/embedding.h"
#include "op/gather.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

constexpr Dim kBlock = 64;  // columns summed at a time, on the stack

struct Size {
  Dim count, depth, width;
};

// Groups the places of indices by row: those of row v are places[first[v]] up to
// places[first[v + 1]], ascending. first (depth + 1), places (count); both int32.
void group(const int32_t* indices, const Size& size, int32_t* first, int32_t* places) {
  std::fill(first, first + size.depth + 1, 0);
  auto inside = [&](Dim i) { return indices[i] >= 0 && indices[i] < size.depth; };
  for (Dim i = 0; i < size.count; ++i)
    if (inside(i)) ++first[indices[i] + 1];
  for (Dim v = 0; v < size.depth; ++v) first[v + 1] += first[v];
  // first[v] moves on to where row v ends, that is to where row v + 1 begins; then all move back.
  for (Dim i = 0; i < size.count; ++i)
    if (inside(i)) places[first[indices[i]]++] = static_cast<int32_t>(i);
  for (Dim v = size.depth; v > 0; --v) first[v] = first[v - 1];
  first[0] = 0;
}

// Columns [begin, end) of all rows. `onto` may be null, or `out` itself.
template <class In, class T>
void sum_columns(const Size& size, const int32_t* first, const int32_t* places, const In* dy,
                 const T* onto, T* out, Dim begin, Dim end) {
  T sum[kBlock];
  for (Dim v = 0; v < size.depth; ++v) {
    T* row = out + v * size.width;
    const T* base = onto ? onto + v * size.width : nullptr;
    if (first[v] == first[v + 1]) {
      if (!base) std::fill(row + begin, row + end, T(0));
      if (base && base != row) std::copy(base + begin, base + end, row + begin);
      continue;
    }
    for (Dim at = begin; at < end; at += kBlock) {
      const Dim columns = std::min(kBlock, end - at);
      const In* from = dy + places[first[v]] * size.width + at;
      for (Dim c = 0; c < columns; ++c) sum[c] = static_cast<T>(from[c]);
      for (int32_t p = first[v] + 1; p < first[v + 1]; ++p) {
        from = dy + places[p] * size.width + at;
        for (Dim c = 0; c < columns; ++c) sum[c] += static_cast<T>(from[c]);
      }
      for (Dim c = 0; c < columns; ++c) row[at + c] = base ? base[at + c] + sum[c] : sum[c];
    }
  }
}

// Both forms: (indices, dy) and (onto, indices, dy). Threads share out the columns, so that the
// order of a sum does not depend on them.
template <class In, class T>
std::unique_ptr<Kernel> gradient(const PrepareCall& call) {
  const size_t i = call.in.size() - 2;
  const Size size{call.in[i].elements(), call.out[0].shape[0], call.out[0].shape[1]};
  const int threads = call.backend.threads();
  constexpr Dim kLine = 64 / static_cast<Dim>(sizeof(T));
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const int32_t* indices = static_cast<const int32_t*>(in[i]);
        const In* dy = static_cast<const In*>(in[i + 1]);
        const T* onto = i == 1 ? static_cast<const T*>(in[0]) : nullptr;
        T* result = static_cast<T*>(out[0]);
        int32_t* first = static_cast<int32_t*>(workspace);
        int32_t* places = first + size.depth + 1;
        group(indices, size, first, places);
        parallel_ranges(
            threads, size.width, (size.count + size.depth) * size.width,
            [&](Dim begin, Dim end) {
              sum_columns(size, first, places, dy, onto, result, begin, end);
            },
            kLine);
      },
      (size.depth + 1 + size.count) * static_cast<Bytes>(sizeof(int32_t)));
}

}  // namespace

std::unique_ptr<Kernel> embedding_reference(const PrepareCall& call) {
  const Shape& table = call.in[0].shape;
  return gather_kernel(call, {.size = table[0], .count = call.in[1].elements(), .inner = table[1]});
}

std::unique_ptr<Kernel> embedding_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.out[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    if (call.in.back().dtype == call.out[0].dtype) return gradient<T, T>(call);
    if constexpr (std::is_same_v<T, float>)
      if (call.in.back().dtype == Dtype::bfloat16) return gradient<Bfloat16, float>(call);
    return nullptr;
  });
}

}  // namespace pl::cpu
