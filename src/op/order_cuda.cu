// CUDA kernels of flip and argsort.
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

constexpr int kMostFlipAxes = 8;
struct FlipAxes {
  int64_t size[kMostFlipAxes];
  bool flipped[kMostFlipAxes];
  int count;
};

template <class T>
__global__ void flip_elements(const T* x, T* y, int64_t total, FlipAxes axes) {
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    int64_t from = 0, index = i, stride = 1;
    for (int d = axes.count; d-- > 0;) {
      const int64_t at = index % axes.size[d];
      from += (axes.flipped[d] ? axes.size[d] - 1 - at : at) * stride;
      index /= axes.size[d];
      stride *= axes.size[d];
    }
    y[i] = x[from];
  }
}

// An element's place is the number of elements of its row that come before it.
template <class T>
__global__ void place_elements(const T* x, int32_t* y, int64_t total, int64_t n, int64_t count,
                               bool descending) {
  for (int64_t e = thread_index(); e < total; e += thread_count()) {
    const int64_t row = e / n, i = e % n;
    const Wide<T> own = widen(x[e]);
    int64_t before = 0;
    for (int64_t j = 0; j < n; ++j) {
      const Wide<T> other = widen(x[row * n + j]);
      const bool own_nan = own != own, other_nan = other != other;
      bool first;
      if (own_nan || other_nan)
        first = own_nan == other_nan ? j < i : own_nan;
      else
        first = other == own ? j < i : (descending ? other > own : other < own);
      before += first ? 1 : 0;
    }
    if (before < count) y[row * count + before] = static_cast<int32_t>(i);
  }
}

template <class T>
std::unique_ptr<Kernel> flip_of(const PrepareCall& call, const FlipAxes& axes) {
  const int64_t total = call.in[0].elements();
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (total > 0)
      flip_elements<T><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
          input<T>(in, 0), output<T>(out, 0), total, axes);
  });
}

}  // namespace

std::unique_ptr<Kernel> flip(const PrepareCall& call) {
  const Shape& shape = call.in[0].shape;
  if (shape.rank() > kMostFlipAxes) return nullptr;
  FlipAxes axes{};
  axes.count = shape.rank();
  for (int d = 0; d < shape.rank(); ++d) axes.size[d] = shape[d];
  for (int64_t axis : call.attrs.list("axes")) axes.flipped[axis] = true;
  switch (size_of(call.in[0].dtype)) {
    case 1:
      return flip_of<uint8_t>(call, axes);
    case 2:
      return flip_of<uint16_t>(call, axes);
    case 4:
      return flip_of<uint32_t>(call, axes);
    default:
      return flip_of<uint64_t>(call, axes);
  }
}

std::unique_ptr<Kernel> argsort(const PrepareCall& call) {
  const int64_t total = call.in[0].elements(), n = call.in[0].shape.back();
  const int64_t count = call.out[0].shape.back();
  const bool descending = call.attrs.integer("descending", 0) != 0;
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        place_elements<T><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
            input<T>(in, 0), output<int32_t>(out, 0), total, n, count, descending);
    });
  });
}

}  // namespace pl::cuda
