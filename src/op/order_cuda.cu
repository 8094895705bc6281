// CUDA kernels of flip and argsort.
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/cuda/sort-inl.cuh"

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

// Ascending with x, as in argsort_cpu.cc: both zeros are equal, NaN are the largest.
template <class T>
__device__ inline uint64_t order_key(T x) {
  if constexpr (std::is_same_v<T, float>) {
    const auto bits = static_cast<uint32_t>(__float_as_int(x));
    const uint32_t key = bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
    return x != x ? 0xFFFFFFFFu : x == 0 ? 0x80000000u : key;
  } else if constexpr (std::is_same_v<T, double>) {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    const auto bits = static_cast<uint64_t>(__double_as_longlong(x));
    const uint64_t key = bits ^ (bits >> 63 ? ~uint64_t{0} : kSign);
    return x != x ? ~uint64_t{0} : x == 0 ? kSign : key;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return static_cast<uint32_t>(x) ^ 0x80000000u;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return static_cast<uint64_t>(x) ^ (uint64_t{1} << 63);
  } else {
    return x;
  }
}

// The word of the elements' keys that sorting comes to, the lowest first.
template <class T>
__global__ void element_keys(const T* x, uint32_t* keys, uint32_t* places, int64_t total, int word,
                             bool descending) {
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    if (word == 0) places[i] = static_cast<uint32_t>(i);
    const uint64_t key = order_key(widen(x[places[i]]));
    keys[i] = static_cast<uint32_t>((descending ? ~key : key) >> (32 * word));
  }
}
__global__ void row_keys(uint32_t* keys, const uint32_t* places, int64_t total, int64_t n) {
  for (int64_t i = thread_index(); i < total; i += thread_count())
    keys[i] = static_cast<uint32_t>(places[i] / n);
}
__global__ void write_places(const uint32_t* places, int32_t* y, int64_t rows, int64_t n,
                             int64_t count) {
  for (int64_t e = thread_index(); e < rows * count; e += thread_count()) {
    const int64_t row = e / count;
    y[e] = static_cast<int32_t>(places[row * n + e % count] - row * n);
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

// Several rows are sorted together: by their keys, then by row.
std::unique_ptr<Kernel> argsort(const PrepareCall& call) {
  constexpr int64_t kTogether = int64_t{1} << 24;  // elements
  const int64_t n = call.in[0].shape.back(), count = call.out[0].shape.back();
  const int64_t rows = n == 0 || count == 0 ? 0 : call.in[0].elements() / n;
  const int64_t most = std::min(rows, std::max<int64_t>(1, kTogether / std::max<int64_t>(n, 1)));
  const bool descending = call.attrs.integer("descending", 0) != 0;
  auto kernel_of = [&]<class T>() {
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          for (int64_t first = 0; first < rows; first += most) {
            const int64_t some = std::min(most, rows - first), total = some * n;
            const unsigned blocks = launch.blocks(total, 256);
            SortSpace space(workspace, total);
            constexpr int kBytes = static_cast<int>(sizeof(Wide<T>));
            for (int word = 0; word < (kBytes + 3) / 4; ++word) {
              element_keys<<<blocks, 256, 0, launch.stream>>>(
                  input<T>(in, 0) + first * n, space.keys, space.places, total, word, descending);
              space.sort(launch, std::min(kBytes, 4));
            }
            if (some > 1) {
              row_keys<<<blocks, 256, 0, launch.stream>>>(space.keys, space.places, total, n);
              space.sort(launch, digits_of(some - 1));
            }
            write_places<<<launch.blocks(some * count, 256), 256, 0, launch.stream>>>(
                space.places, output<int32_t>(out, 0) + first * count, some, n, count);
          }
        },
        SortSpace::words(most * n) * static_cast<Bytes>(sizeof(uint32_t)));
  };
  if (size_of(call.in[0].dtype) == 1) return kernel_of.template operator()<uint8_t>();
  return dispatch_number(call.in[0].dtype, kernel_of);
}

}  // namespace pl::cuda
