#include "op/cuda/conv_pack.h"
#include "op/cuda/columns-inl.cuh"

namespace pl::cuda {
namespace {

// Of a packed pixel or tap: which position of the group a channel stands for.
struct PackPlace {
  int h, w, c;
};
struct PackShape {
  int group_h, group_w, step_h, step_w, taps_h, taps_w, before_h, before_w;
  int height, width, packed_h, packed_w, kernel_h, kernel_w, channels, packed_c, filters;
  __device__ PackPlace place(int q) const {
    const int at = q / channels;
    return {at / group_w, at % group_w, q % channels};
  }
  __device__ bool exists(int q) const { return q < group_h * group_w * channels; }
};

PackShape pack_shape(const Conv2dForm& f, const ConvPack& p) {
  auto small = [](Dim x) { return static_cast<int>(x); };
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return {small(p.h.group), small(p.w.group),  small(p.h.step),   small(p.w.step),
          small(p.h.taps),  small(p.w.taps),   small(p.h.before), small(p.w.before),
          small(h.in),      small(w.in),       small(p.h.size),   small(p.w.size),
          small(h.kernel),  small(w.kernel),   small(f.channels), small(p.channels),
          small(f.filters)};
}

// Where a packed channel comes from: rows below the packed one's first, columns behind it, and
// elements from its first. `rows` is negative where the channel is padding.
struct PackedFrom {
  int16_t rows, columns;
  int offset;
};
constexpr int kMostPackedChannels = 256;

// A block has rows of packed images, a thread 8 channels of a pixel at a time. Elements are only
// moved; where they come from is looked up.
__global__ void __launch_bounds__(256)
    pack_images(PackShape s, const uint16_t* x, uint16_t* packed, unsigned lines) {
  __shared__ PackedFrom from[kMostPackedChannels];
  for (int q = static_cast<int>(threadIdx.x); q < s.packed_c; q += 256) {
    const PackPlace at = s.place(q);
    from[q] = {static_cast<int16_t>(s.exists(q) ? at.h : -1), static_cast<int16_t>(at.w),
               (at.h * s.width + at.w) * s.channels + at.c};
  }
  __syncthreads();
  const int of_pixel = s.packed_c / 8, across = s.packed_w * of_pixel;
  for (unsigned line = blockIdx.x; line < lines; line += gridDim.x) {
    const unsigned b = line / static_cast<unsigned>(s.packed_h);
    const int top = static_cast<int>(line - b * static_cast<unsigned>(s.packed_h)) * s.step_h -
                    s.before_h;
    const uint16_t* image = x + static_cast<int64_t>(b) * s.height * s.width * s.channels;
    for (int j = static_cast<int>(threadIdx.x); j < across; j += 256) {
      const int column = j / of_pixel, first = (j - column * of_pixel) * 8;
      const int left = column * s.step_w - s.before_w;
      const int64_t corner = (static_cast<int64_t>(top) * s.width + left) * s.channels;
      Pack<uint16_t> pack;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const PackedFrom at = from[first + i];
        const int h = top + at.rows, w = left + at.columns;
        const bool inside = at.rows >= 0 && h >= 0 && h < s.height && w >= 0 && w < s.width;
        pack.at[i] = inside ? image[corner + at.offset] : uint16_t(0);
      }
      store_pack(packed + (static_cast<int64_t>(line) * across + j) * 8, pack);
    }
  }
}

__global__ void pack_kernel(PackShape s, const uint16_t* w, uint16_t* packed, int total) {
  for (int i = static_cast<int>(thread_index()); i < total; i += static_cast<int>(thread_count())) {
    const int q = i % s.packed_c, tap = i / s.packed_c;
    const int tw = tap % s.taps_w, th = tap / s.taps_w % s.taps_h, o = tap / s.taps_w / s.taps_h;
    const PackPlace at = s.place(q);
    const int h = th * s.step_h + at.h, c = tw * s.step_w + at.w;
    const bool inside = s.exists(q) && h < s.kernel_h && c < s.kernel_w;
    packed[i] =
        inside ? w[((h * s.kernel_w + c) * s.channels + at.c) * s.filters + o] : uint16_t(0);
  }
}

template <class To, class From>
__global__ void unpack_gradient(PackShape s, const From* packed, To* dw, int total) {
  for (int i = static_cast<int>(thread_index()); i < total; i += static_cast<int>(thread_count())) {
    const int o = i % s.filters, c = i / s.filters % s.channels;
    const int tap = i / s.filters / s.channels;
    const int h = tap / s.kernel_w, w = tap % s.kernel_w;
    const int th = min(h / s.step_h, s.taps_h - 1), tw = min(w / s.step_w, s.taps_w - 1);
    const int q = ((h - th * s.step_h) * s.group_w + w - tw * s.step_w) * s.channels + c;
    dw[i] = static_cast<To>(
        widen(packed[((o * s.taps_h + th) * s.taps_w + tw) * s.packed_c + q]));
  }
}

// A block has rows of pixels. Channels are a multiple of N.
template <class T, int N>
__global__ void __launch_bounds__(256)
    add_strided(PackShape s, const T* pixels, T* images, unsigned lines, int tall, int wide) {
  const int across = wide * s.channels / N, of_pixel = s.channels / N;
  for (unsigned line = blockIdx.x; line < lines; line += gridDim.x) {
    const unsigned b = line / static_cast<unsigned>(tall), row = line - b * tall;
    const int64_t start =
        (static_cast<int64_t>(b) * s.height + static_cast<int64_t>(row) * s.step_h) * s.width;
    for (int j = static_cast<int>(threadIdx.x); j < across; j += 256) {
      const int column = j / of_pixel, c = (j - column * of_pixel) * N;
      T* to = images + (start + column * s.step_w) * s.channels + c;
      Wide<T> v[N], more[N];
      load_wide<N>(to, v);
      load_wide<N>(pixels + (static_cast<int64_t>(line) * across + j) * N, more);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += more[i];
      store_narrow<N>(to, v);
    }
  }
}

// Taps taken together become channels all at once, with one tap left; otherwise as many as a stride
// has, so that nothing is stored twice.
PackedAxis packed_axis(const WindowAxis& a, bool together) {
  PackedAxis axis{.step = a.stride, .before = a.before};
  axis.group = together ? a.kernel : a.stride;
  axis.taps = together ? 1 : (a.kernel + a.stride - 1) / a.stride;
  axis.size = a.out + axis.taps - 1;
  return axis;
}

Launch launch_on(Backend& backend) {
  auto& device = static_cast<CudaBackend&>(backend);
  return {device.stream(), device.multiprocessors()};
}

}  // namespace

std::optional<ConvPack> conv_pack(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  if (f.groups != 1 || f.channels >= 8 || h.dilation != 1 || w.dilation != 1) return std::nullopt;
  if (h.kernel * w.kernel == 1 || h.kernel > 32 || w.kernel > 32) return std::nullopt;
  // Measured with cuDNN 9 on an H200, 3 channels: 3x3 in 1.4 ms as 1x1 of 32 channels and in 2.2 as
  // 3x3 of 8; 7x7 with stride 2 in 0.9 as 4x1 of 48 and in 1.3 as 4x4 of 16.
  constexpr Dim kMostPacked = 64;
  ConvPack pack;
  pack.h = packed_axis(h, h.kernel * w.kernel * f.channels <= kMostPacked);
  pack.w = packed_axis(w, true);
  pack.channels = align_up(pack.h.group * pack.w.group * f.channels, 8);
  if (pack.channels > kMostPackedChannels) return std::nullopt;
  return pack;
}

void launch_pack_images(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                        const void* x, void* packed) {
  const Launch launch = launch_on(backend);
  const auto lines = static_cast<unsigned>(form.batch * pack.h.size);
  pack_images<<<launch.blocks(lines, 1, 32), 256, 0, launch.stream>>>(
      pack_shape(form, pack), static_cast<const uint16_t*>(x), static_cast<uint16_t*>(packed),
      lines);
}

void launch_pack_kernel(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                        const void* w, void* packed) {
  const Launch launch = launch_on(backend);
  const auto total = static_cast<int>(form.filters * pack.h.taps * pack.w.taps * pack.channels);
  pack_kernel<<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
      pack_shape(form, pack), static_cast<const uint16_t*>(w), static_cast<uint16_t*>(packed),
      total);
}

void launch_unpack_gradient(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                            Dtype from, const void* packed, Dtype to, void* dw) {
  const Launch launch = launch_on(backend);
  const auto total =
      static_cast<int>(form.window.h.kernel * form.window.w.kernel * form.channels * form.filters);
  auto go = [&]<class To, class From>() {
    unpack_gradient<To, From><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
        pack_shape(form, pack), static_cast<const From*>(packed), static_cast<To*>(dw), total);
  };
  auto of = [&]<class From>() {
    if (to == Dtype::float32) return go.template operator()<float, From>();
    go.template operator()<From, From>();
  };
  if (from == Dtype::bfloat16) return of.template operator()<Bf16>();
  of.template operator()<Half>();
}

void launch_add_strided(Backend& backend, const Conv2dForm& form, Dtype dtype, const void* pixels,
                        void* images) {
  const Launch launch = launch_on(backend);
  const WindowAxis &h = form.window.h, &w = form.window.w;
  PackShape s = pack_shape(form, {});
  s.step_h = static_cast<int>(h.stride);
  s.step_w = static_cast<int>(w.stride);
  const auto lines = static_cast<unsigned>(form.batch * h.out);
  auto go = [&]<class T>() {
    auto* kernel = form.channels % Pack<T>::kSize == 0 ? add_strided<T, Pack<T>::kSize>
                                                       : add_strided<T, 1>;
    kernel<<<launch.blocks(lines, 1, 32), 256, 0, launch.stream>>>(
        s, static_cast<const T*>(pixels), static_cast<T*>(images), lines,
        static_cast<int>(h.out), static_cast<int>(w.out));
  };
  if (dtype == Dtype::bfloat16) return go.template operator()<Bf16>();
  if (dtype == Dtype::float16) return go.template operator()<Half>();
  if (dtype == Dtype::float64) return go.template operator()<double>();
  go.template operator()<float>();
}

}  // namespace pl::cuda
